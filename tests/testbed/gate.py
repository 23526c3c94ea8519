"""Provides a gate between a process under test and its services: it counts, holds and refuses requests on demand.

It runs in a thread of the test.  A held request never gets a response: its caller is killed, or gives up.
"""

import asyncio
import re
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from tests.testbed.processes import LOOPBACK, free_ports
from tests.testbed.waiting import PATIENCE_S, wait_for

Answering = Callable[[httpx.Request], Awaitable[httpx.Response]]
_OF_ONE_HOP = {"host", "connection", "content-length", "content-encoding", "transfer-encoding", "accept-encoding"}


@dataclass(slots=True)
class Hold:
    """Selects the request to hold: the `nth` match, before it is forwarded or after it took effect."""

    method: str
    path: str  # a regular expression over the whole path
    nth: int = 1
    after: bool = False
    closes: str | None = None  # the connection to close at the same time
    reached: threading.Event = field(default_factory=threading.Event)
    given_up: threading.Event = field(default_factory=threading.Event)  # the caller closed the connection
    given_up_s: float | None = None  # by the steady clock
    matches: int = 0

    def is_hit_by(self, method: str, path: str) -> bool:
        if method != self.method or re.fullmatch(self.path, path) is None:
            return False
        self.matches += 1
        return self.matches == self.nth

    def wait(self) -> None:
        """Wait until the request is held."""
        assert self.reached.wait(PATIENCE_S), f"no {self.method} {self.path} arrived, or only {self.matches}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Records a forwarded request."""

    came_s: float  # by the steady clock
    method: str
    path: str
    status: int


@dataclass
class Gate:
    """Forwards `/NAME/...` to the service registered as NAME; 503 without one."""

    url: str
    behind: dict[str, Answering | str] = field(default_factory=dict)  # a function, or the URL of a server
    holds: list[Hold] = field(default_factory=list)
    passed: list[Passed] = field(default_factory=list)
    http: httpx.AsyncClient | None = None

    def hold(self, hold: Hold) -> Hold:
        """Hold a request that arrives from now on."""
        self.holds.append(hold)
        return hold

    async def __call__(self, scope: Mapping[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        came_s = time.monotonic()
        request = await _request(scope, receive)
        name, path = scope["raw_path"].decode().removeprefix("/").split("/", 1)
        hold = next((each for each in list(self.holds) if each.is_hit_by(request.method, scope["path"])), None)
        if hold is not None and hold.closes is not None:
            self.behind.pop(hold.closes, None)
        if hold is not None and not hold.after:
            await _never_respond(hold, receive)
            return
        query = scope["query_string"].decode()
        inner = httpx.URL(f"http://behind/{path}?{query}" if query else f"http://behind/{path}")
        response = await self._pass_on(
            name, httpx.Request(request.method, inner, headers=request.headers, content=request.content)
        )
        if hold is not None:
            await _never_respond(hold, receive)
            return
        self.passed.append(
            Passed(came_s=came_s, method=request.method, path=scope["path"], status=response.status_code)
        )
        headers = [(key, value) for key, value in response.headers.raw if key.decode().lower() not in _OF_ONE_HOP]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": response.content})

    async def _pass_on(self, name: str, request: httpx.Request) -> httpx.Response:
        behind = self.behind.get(name)
        if behind is None or self.http is None:
            return httpx.Response(503)
        if not isinstance(behind, str):
            return await behind(request)
        url = httpx.URL(behind).copy_with(raw_path=request.url.raw_path)
        return await self.http.request(request.method, url, headers=request.headers, content=request.content)


@contextmanager
def running_gate(*, ca_path: Path | None = None) -> Iterator[Gate]:
    """Run a gate; `ca_path` holds the authority of the certificates of the services behind it."""
    (port,) = free_ports(1)
    gate = Gate(url=f"http://{LOOPBACK}:{port}")
    config = uvicorn.Config(
        gate,
        host=LOOPBACK,
        port=port,
        log_level="critical",
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)

    async def serve() -> None:
        trusted = ssl.create_default_context(cafile=ca_path)
        async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False, verify=trusted) as gate.http:
            await server.serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started, what="gate")
        yield gate
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)


async def _request(scope: Mapping[str, Any], receive: Callable[[], Any]) -> httpx.Request:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    headers = [(key, value) for key, value in scope["headers"] if key.decode() not in _OF_ONE_HOP]
    return httpx.Request(scope["method"], "http://gate/", headers=headers, content=body)


async def _never_respond(hold: Hold, receive: Callable[[], Any]) -> None:
    hold.reached.set()
    while (await receive())["type"] != "http.disconnect":
        await asyncio.sleep(0)
    hold.given_up_s = time.monotonic()
    hold.given_up.set()
