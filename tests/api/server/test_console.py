"""The console's files: served to everybody under a strict policy, small, without other sites, styles or scripts in the
page, and in the package that is installed.
"""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import pytest

from api.server.routes.console import HEADERS, MEDIA_TYPES, PAGE, console_files
from fleet.sizes.presets import builtin_size_presets
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio

FOLDER = Path(__file__).parents[3] / "api/server/console"
TOTAL_BYTES_MAX = 300_000
IMPORT = re.compile(r'^import [^;]*?from "([^"]+)";', re.MULTILINE | re.DOTALL)
NAMESPACES = {"http://www.w3.org/2000/svg"}  # names, which nothing loads


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.attributes: list[str] = []
        self.inline: list[str] = []
        self._open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = tag
        self.attributes += [name for name, _value in attrs]
        self.urls += [value for name, value in attrs if name in {"href", "src"} and value and tag != "a"]

    def handle_data(self, data: str) -> None:
        if self._open in {"script", "style"} and data.strip():
            self.inline.append(data)

    def handle_endtag(self, _tag: str) -> None:
        self._open = ""


def text_of(name: str) -> str:
    return console_files()[name].content.decode()


async def test_the_root_is_the_console_for_everybody(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(None) as client:
        answer = await client.get("/")
        head = await client.head("/")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<title>Fleetwright</title>" in answer.text
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", answer.headers["etag"])


async def test_every_file_has_a_strict_policy_and_a_media_type(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(None) as client:
        for name, file in console_files().items():
            answer = await client.get(f"/console/{name}")
            assert (answer.status_code, answer.content) == (200, file.content), name
            assert answer.headers["content-type"] == MEDIA_TYPES[name.rpartition(".")[2]]
            assert answer.headers["x-content-type-options"] == "nosniff"
            for header, value in HEADERS.items():
                assert answer.headers[header] == value
    policy = dict(part.strip().split(" ", maxsplit=1) for part in HEADERS["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self' data:",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }


async def test_a_known_file_is_not_sent_again(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(None) as client:
        first = await client.get("/console/app.js")
        again = await client.get("/console/app.js", headers={"If-None-Match": first.headers["etag"]})
        other = await client.get("/console/app.js", headers={"If-None-Match": '"other"'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert again.headers["cache-control"] == "no-cache"
    assert other.status_code == 200
    assert len({file.etag for file in console_files().values()}) == len(console_files())


@pytest.mark.parametrize(
    "path", ["", "none.js", "..%2f__init__.py", "%2e%2e/app.py", "lib", "lib/../app.js%00", "app.JS"]
)
async def test_no_other_file_is_served(sqlite_service: RunningService, path: str) -> None:
    async with sqlite_service.client(None) as client:
        answer = await client.get(f"/console/{path}")
    assert answer.status_code == 404
    assert answer.json()["type"] == "urn:fleetwright:problem:not-found"


def test_all_files_are_small_and_known() -> None:
    files = {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*") if path.is_file()}
    assert files.keys() == console_files().keys()
    assert sum(path.stat().st_size for path in files.values()) < TOTAL_BYTES_MAX


def test_the_page_has_no_script_and_no_style_of_its_own() -> None:
    page = Elements()
    page.feed(text_of(PAGE))
    assert page.inline == []
    assert not [name for name in page.attributes if name == "style" or name.startswith("on")]
    assert {url.removeprefix("console/") for url in page.urls} <= console_files().keys()


def test_modules_import_only_each_other() -> None:
    modules = {name: text_of(name) for name in console_files() if name.endswith(".js")}
    reached = {"theme.js", "app.js"}
    waiting = ["app.js"]
    while waiting:
        name = waiting.pop()
        for url in IMPORT.findall(modules[name]):
            assert url.startswith("."), "relative, so that a prefix of a gateway stays"
            found = urljoin(f"/{name}", url).removeprefix("/")
            assert found in modules, f"{name} imports {url}"
            if found not in reached:
                reached.add(found)
                waiting.append(found)
    assert reached == modules.keys(), "modules that nothing imports"


@pytest.mark.parametrize(
    "forbidden", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
)
def test_no_module_parses_text_as_html_or_code(forbidden: str) -> None:
    assert not [name for name in console_files() if forbidden in text_of(name)]


def test_no_file_names_another_site() -> None:
    for name in console_files():
        assert set(re.findall(r"(?:https?:)?//[a-z][\w.-]+\.[a-z]{2,}[^\s\"'`)]*", text_of(name))) <= NAMESPACES, name


def test_the_offered_presets_are_those_of_the_planner() -> None:
    (listed,) = re.findall(r"PRESETS = (\[.*?\]);", text_of("lib/presets.js"))
    assert json.loads(listed) == [preset.name for preset in builtin_size_presets().presets]
