"""The limits of the HTTP front, over real sockets, with an application that reads the whole body."""

import asyncio
import errno
import json
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from api.server.front import BACKLOG, RESERVED_FILES, FrontLimits, front_config, within_file_limit
from tests.testbed.processes import LOOPBACK
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
BRIEF_S = 1.5  # for limits that the sweep, once a second, must find exceeded
LARGE_BYTES = 8_000_000


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond with the length of the body; under `/early` before it is read, under `/large` with many bytes."""
    length = 0
    while scope["path"] != "/early":
        message = await receive()
        length += len(message.get("body", b""))
        if not message.get("more_body", False):
            break
    if scope["path"] == "/slow":
        await asyncio.sleep(BRIEF_S + 2)
    body = b"x" * LARGE_BYTES if scope["path"] == "/large" else str(length).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True, slots=True)
class Front:
    port: int
    refusals: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator["Wire"]:
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port, limit=2 * LARGE_BYTES)
        try:
            yield Wire(reader, writer)
        finally:
            writer.transport.abort()


@dataclass(frozen=True, slots=True)
class Wire:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def response(self) -> tuple[int, bytes]:
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return int(head.split()[1]), await self.reader.readexactly(length)

    async def problem(self) -> Any:
        """Read a problem, after which the server closes the connection."""
        status, body = await self.response()
        problem = json.loads(body)
        assert problem["status"] == status
        assert await self.is_closed()
        return problem

    async def is_closed(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[Front]:
    listener = socket.create_server((LOOPBACK, 0))
    front = Front(listener.getsockname()[1])
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    config = front_config(
        echo, limits=FrontLimits(**limits), observe_refusal=front.refusals.append, lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        yield front
    finally:
        server.should_exit = server.force_exit = True
        await running
        loop.set_exception_handler(handler)


async def test_requests_on_one_connection_are_answered() -> None:
    async with serving() as front, front.connect() as wire:
        for length in (0, 10, 200_000):
            wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length + b"b" * length)
            assert await wire.response() == (200, str(length).encode())
        wire.send((HEAD + b"\r\n") * 3)
        assert [await wire.response() for _each in range(3)] == [(200, b"0")] * 3
    assert front.refusals == []


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(HEAD + b"X: " + b"a" * 70_000, id="one unfinished header"),
        pytest.param(HEAD + b"X: " + b"a" * 70_000 + b"\r\n\r\n", id="one header"),
        pytest.param(HEAD + b"a:b\r\n" * 100 + b"\r\n", id="101 headers"),
        pytest.param(b"GET /" + b"a" * 70_000, id="an unfinished address"),
        pytest.param(HEAD + b"a: " + b"b" * 40_000 + b"\r\nc: " + b"d" * 40_000 + b"\r\n\r\n", id="two headers"),
    ],
)
async def test_a_head_over_the_limits_is_431(head: bytes) -> None:
    async with serving() as front, front.connect() as wire:
        wire.send(head)
        problem = await wire.problem()
    assert (problem["status"], problem["type"]) == (431, "urn:fleetwright:problem:headers-too-large")
    assert front.refusals == ["headers-too-large"]


async def test_a_head_at_the_limits_is_answered() -> None:
    async with serving() as front, front.connect() as wire:
        wire.send(HEAD + b"a: " + b"b" * 64_000 + b"\r\n" + b"c:d\r\n" * 98 + b"\r\n")
        assert await wire.response() == (200, b"0")


@pytest.mark.parametrize(
    ("request_", "detail"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "header Host: must be given exactly once"),
        (HEAD + b"Host: y\r\n\r\n", "header Host: must be given exactly once"),
        (b"\x16\x03\x01\x02\x00\x01", "the request is not HTTP/1.1"),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", "the request is not HTTP/1.1"),
    ],
)
async def test_a_malformed_request_is_400(request_: bytes, detail: str) -> None:
    async with serving() as front, front.connect() as wire:
        wire.send(request_)
        problem = await wire.problem()
    assert (problem["status"], problem["detail"]) == (400, detail)


async def test_http_1_0_needs_no_host() -> None:
    async with serving() as front, front.connect() as wire:
        wire.send(b"GET / HTTP/1.0\r\n\r\n")
        assert await wire.response() == (200, b"0")
        assert await wire.is_closed()


async def test_a_head_must_be_complete_in_time() -> None:
    async with serving(head_s=BRIEF_S) as front, front.connect() as wire, front.connect() as silent:
        wire.send(HEAD)
        assert (await wire.problem())["status"] == 408
        assert await silent.is_closed()  # without a response to what was never asked
    assert front.refusals == ["request-timeout"] * 2


async def test_the_second_head_of_a_connection_must_be_complete_in_time_too() -> None:
    async with serving(head_s=BRIEF_S) as front, front.connect() as wire:
        wire.send(HEAD + b"\r\n" + HEAD)
        assert await wire.response() == (200, b"0")
        assert (await wire.problem())["status"] == 408


async def test_a_body_must_come_at_the_least_rate() -> None:
    slow = {"body_window_s": BRIEF_S, "body_bytes_per_s": 1000}
    async with serving(**slow) as front, front.connect() as slow_wire, front.connect() as fast_wire:
        for wire in (slow_wire, fast_wire):
            wire.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 40000\r\n\r\n")
        slow_wire.send(b"b" * 100)
        for _tenth in range(40):
            fast_wire.send(b"b" * 1000)
            await asyncio.sleep(0.1)
        assert (await slow_wire.problem())["status"] == 408
        assert await fast_wire.response() == (200, b"40000")


async def test_a_request_in_progress_has_no_time_limit_here() -> None:
    times = {"head_s": BRIEF_S, "body_window_s": BRIEF_S, "unread_s": BRIEF_S, "linger_s": BRIEF_S}
    async with serving(**times) as front, front.connect() as wire:
        wire.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await wire.response() == (200, b"0")


async def test_the_rest_of_a_body_that_was_not_wanted_is_read_for_a_moment() -> None:
    async with serving(linger_s=BRIEF_S) as front, front.connect() as wire:
        wire.send(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n")
        assert await wire.response() == (200, b"0")
        assert await wire.is_closed()


async def test_a_response_must_be_read() -> None:
    async with serving(unread_s=BRIEF_S) as front:
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect((LOOPBACK, front.port))
        stuck.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            while front.refusals != ["response-not-read"]:
                await asyncio.sleep(0.05)
        stuck.close()


async def test_an_idle_connection_is_kept_for_its_time() -> None:
    async with serving(keep_alive_s=1) as front, front.connect() as wire:
        wire.send(HEAD + b"\r\n")
        assert await wire.response() == (200, b"0")
        await asyncio.sleep(0.5)
        wire.send(HEAD + b"\r\n")
        assert await wire.response() == (200, b"0")
        assert await wire.is_closed()
    assert FrontLimits().keep_alive_s == 75


async def test_at_the_limit_the_longest_waiting_connection_is_closed() -> None:
    async with (
        serving(connections=3) as front,
        front.connect() as busy,
        front.connect() as idle,
        front.connect() as half,
    ):
        busy.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        half.send(HEAD)
        idle.send(HEAD + b"\r\n")
        assert await idle.response() == (200, b"0")  # it waits for less time than the half request
        async with front.connect() as newest:
            newest.send(HEAD + b"\r\n")
            assert await newest.response() == (200, b"0")
            assert await half.is_closed()
            idle.send(HEAD + b"\r\n")
            assert await idle.response() == (200, b"0")
            assert await busy.response() == (200, b"0")
    assert front.refusals == ["connection-limit"]


async def test_a_new_connection_is_refused_while_all_others_are_answered() -> None:
    async with serving(connections=1) as front, front.connect() as busy:
        busy.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.sleep(0.2)
        async with front.connect() as newest:
            assert (await newest.problem())["type"] == "urn:fleetwright:problem:too-many-connections"
        assert await busy.response() == (200, b"0")


async def test_too_many_pipelined_requests_end_the_connection() -> None:
    async with serving(pipelined=4) as front, front.connect() as wire:
        wire.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        assert await wire.is_closed()


async def test_failures_to_accept_are_logged_once_a_second() -> None:
    async with serving():
        loop = asyncio.get_running_loop()
        error = {"message": "socket.accept() out of system resource", "exception": OSError(errno.EMFILE, "")}
        with capture_logs() as logged:
            for _each in range(1000):
                loop.call_exception_handler(error)
            await asyncio.sleep(1.2)
    assert [(each["reason"], each["count"]) for each in logged] == [("no-free-file", 1000)]


@contextmanager
def open_file_limit(soft: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_of_open_files_is_raised() -> None:
    with open_file_limit(600):
        assert within_file_limit(FrontLimits(connections=1000)).connections == 1000
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 1000 + RESERVED_FILES


def test_connections_stay_below_the_hard_limit_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    getrlimit: Callable[[int], tuple[int, int]] = lambda _which: (512, 1024)  # noqa: E731 - shorter than a function
    monkeypatch.setattr(resource, "getrlimit", getrlimit)
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: given.append(limits))
    assert within_file_limit(FrontLimits(connections=2000)).connections == 1024 - RESERVED_FILES
    assert given == [(1024, 1024)]
    assert RESERVED_FILES > BACKLOG
