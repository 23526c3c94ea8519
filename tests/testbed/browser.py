"""Provides the `browser` fixture: a headless Chromium, driven by the DevTools protocol over a pair of pipes.

The program is that of `FLEETWRIGHT_CHROMIUM`, of PATH, or Debian's package unpacked into the cache.  A page records
what a test must not find: errors on its console, exceptions, violations of its policy, and requests to other origins.
"""

import base64
import fcntl
import json
import os
import queue
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.testbed import debian
from tests.testbed.binaries import cache_root
from tests.testbed.requirements import UnavailableError

VARIABLE: Final = "FLEETWRIGHT_CHROMIUM"
PACKAGE: Final = "chromium"
ANSWER_S: Final = 60.0
WAIT_S: Final = 60.0  # a loaded two-core machine is slow
KEYS: Final = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Space": ("Space", 32, " "),
    "Escape": ("Escape", 27, ""),
    "ArrowDown": ("ArrowDown", 40, ""),
    "End": ("End", 35, ""),
}


@dataclass(frozen=True, slots=True)
class Chromium:
    """Names the program, and the tree of the unpacked package with libraries that the machine lacks."""

    program: Path
    tree: Path | None = None

    def environment(self) -> dict[str, str]:
        if self.tree is None:
            return dict(os.environ)
        # PulseAudio's private library lies one directory below the others.
        folders = [folder for path in debian.libraries(self.tree) for folder in (path, path / "pulseaudio")]
        return os.environ | {"LD_LIBRARY_PATH": ":".join(map(str, folders))}


def find_chromium(cache: Path | None = None) -> Chromium:
    """Return the program to use; `UnavailableError` where this machine has none."""
    if configured := os.environ.get(VARIABLE):
        return Chromium(Path(configured))
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (found := shutil.which(name)) is not None:
            return Chromium(Path(found))
    cache = cache or cache_root() / PACKAGE
    tree = debian.cached(cache) or debian.fetch(PACKAGE, cache=cache, also=lambda _name: True)
    return Chromium(tree / "usr/lib/chromium/chromium", tree)


class BrowserError(Exception):
    """The browser refused a command, or a script on the page failed."""


class Browser:
    """Runs Chromium and exchanges messages with it, which end with a NUL."""

    def __init__(self, chromium: Chromium, *, folder: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        options = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--hide-scrollbars"]
        options += ["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"]
        options += ["--force-color-profile=srgb", f"--user-data-dir={folder / 'profile'}", "about:blank"]
        # High numbers first, because Chromium reads commands from descriptor 3 and writes to 4.
        above = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 10) for each in (to_browser, from_browser)]
        log = str(folder / "chromium.log")
        self._pid = os.posix_spawn(
            chromium.program,
            [str(chromium.program), *options],
            chromium.environment(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, above[0], 3),
                (os.POSIX_SPAWN_DUP2, above[1], 4),
            ],
        )
        for each in (to_browser, from_browser, *above):
            os.close(each)
        self._answers: dict[int, queue.Queue[Mapping[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        self._last = 0
        threading.Thread(target=self._receive, daemon=True).start()

    def send(self, method: str, *, session: str | None = None, **params: Any) -> Any:
        """Send a command and return its result."""
        self._last += 1
        number, answers = self._last, queue.Queue[Mapping[str, Any]]()
        self._answers[number] = answers
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._write, json.dumps(message).encode() + b"\0")
        try:
            answer = answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise BrowserError(f"{method}: no answer within {ANSWER_S:g} s") from None
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, *, width: int = 1280, height: int = 900) -> "Page":
        """Open a page in a context of its own, without the cookies of other pages."""
        context = self.send("Target.createBrowserContext")["browserContextId"]
        target = self.send(
            "Target.createTarget", url="about:blank", browserContextId=context, width=width, height=height
        )
        session = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        page = Page(browser=self, session=session)
        self._pages[session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.resize(width, height)
        return page

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._write)

    def _receive(self) -> None:
        received = b""
        with os.fdopen(self._read, "rb", buffering=0) as stream:
            while chunk := stream.read(1 << 20):
                *messages, received = (received + chunk).split(b"\0")
                for message in map(json.loads, messages):
                    if "id" in message:
                        self._answers.pop(message["id"]).put(message)
                    elif (page := self._pages.get(message.get("sessionId", ""))) is not None:
                        page.observe(message["method"], message["params"])


@dataclass(slots=True)
class Page:
    """Is one tab."""

    browser: Browser
    session: str
    problems: list[str] = field(default_factory=list)  # errors on the console, exceptions, violations of the policy
    requested: list[str] = field(default_factory=list)  # URLs
    allowed_statuses: set[int] = field(default_factory=set)  # of answers that a test expects

    def send(self, method: str, **params: Any) -> Any:
        return self.browser.send(method, session=self.session, **params)

    def observe(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning", "assert"}:
            self.problems.append(str([each.get("value", each.get("description")) for each in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
            text = params["entry"]["text"]
            if not any(f"status of {status}" in text for status in self.allowed_statuses):
                self.problems.append(f"{text} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])

    def other_origins(self, url: str) -> list[str]:
        """Return the requests that did not go to the origin of a URL."""
        own = urlsplit(url)[:2]
        return [each for each in self.requested if each.startswith(("http", "ws")) and urlsplit(each)[:2] != own]

    def resize(self, width: int, height: int, *, scale: float = 1.0) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def prefer(self, scheme: str) -> None:
        """Emulate a system with a `dark` or `light` theme."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def goto(self, url: str) -> None:
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'", what=f"the load of {url}")

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression or of a promise."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if (details := answer.get("exceptionDetails")) is not None:
            raise BrowserError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def wait(self, script: str, *, what: str | None = None, seconds: float = WAIT_S) -> Any:
        """Wait until an expression is true, and return its value, which must not be an element."""
        deadline_s = time.monotonic() + seconds
        while not (value := self.evaluate(script)):
            if time.monotonic() > deadline_s:
                text = self.evaluate("document.body.innerText")
                raise AssertionError(f"{what or script}: not within {seconds:g} s; problems: {self.problems}\n{text}")
            time.sleep(0.05)
        return value

    def wait_text(self, text: str, *, within: str = "document.body", seconds: float = WAIT_S) -> None:
        quoted = json.dumps(text)
        self.wait(f"{within}?.innerText.includes({quoted})", what=f"the text {text!r}", seconds=seconds)

    def click(self, text: str, *, tag: str = "button, a", within: str = "document") -> None:
        """Click the control with this name."""
        named = f"(each.ariaLabel ?? each.innerText).trim() === {json.dumps(text)}"
        found = f"[...{within}.querySelectorAll({json.dumps(tag)})].find(each => {named} && !each.disabled)"
        self.wait(f"Boolean({found})", what=f"a control named {text!r}")
        self.evaluate(f"{found}.click()")

    def label(self, text: str) -> str:
        """Return an expression for the control with this label."""
        found = f"[...document.querySelectorAll('label')].find(each => each.innerText.trim() === {json.dumps(text)})"
        return f"document.getElementById({found}?.htmlFor)"

    def fill(self, label: str, value: str) -> None:
        """Replace the text of a field, or choose an option, as a user does."""
        control = self.label(label)
        self.wait(f"Boolean({control})", what=f"a field named {label!r}")
        events = "".join(f"at.dispatchEvent(new Event('{name}', {{bubbles: true}}));" for name in ("input", "change"))
        self.evaluate(f"(() => {{ const at = {control}; at.focus(); at.value = {json.dumps(value)}; {events} }})()")

    def press(self, key: str, *, times: int = 1, shift: bool = False) -> None:
        code, number, text = KEYS.get(key, (key, 0, ""))
        common = {"key": " " if key == "Space" else key, "code": code, "windowsVirtualKeyCode": number}
        for _ in range(times):
            down = {"type": "keyDown" if text else "rawKeyDown", "text": text, "modifiers": 8 if shift else 0}
            self.send("Input.dispatchKeyEvent", **common, **down)
            self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Type into the focused control."""
        self.send("Input.insertText", text=text)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        options: dict[str, Any] = {"format": "png"}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            options |= {"captureBeyondViewport": True, "clip": {**size, "x": 0, "y": 0, "scale": 1}}
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", **options)["data"]))


@contextmanager
def running_browser(folder: Path) -> Iterator[Browser]:
    browser = Browser(find_chromium(), folder=folder)
    try:
        yield browser
    finally:
        browser.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Run one browser for the tests of a module; each opens its own pages."""
    try:
        find_chromium()
    except UnavailableError as unavailable:
        pytest.skip(f"Chromium: {unavailable}")
    with running_browser(tmp_path_factory.mktemp("browser")) as running:
        yield running
