"""Limits what one client can make the HTTP server hold: bytes of headers, time of a request, connections.

All of it happens before a token is read, so no token is needed to attack it.  uvicorn has none of these limits
(docs/adr/0007); `FrontProtocol` adds them to its protocol.  `Front` holds what the connections share: which of them
wait for their client, oldest first, and why connections were closed.
"""

import asyncio
import resource
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from http import HTTPStatus
from typing import Any

import httptools
import structlog
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from api.server.problems import ProblemError, problem_response

BACKLOG = 128  # asyncio accepts as many connections at once before any of them can be counted
RESERVED_FILES = BACKLOG + 128  # database connections, logs, child processes, and the in-process controller
MIN_CONNECTIONS = 16
READ_BYTES = 64 * 1024  # asyncio reads 256 KiB at once, more than the whole limit of a head
SWEEP_S = 1.0

log = structlog.get_logger("fleetwright.front")


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontLimits:
    """What a client may do.  The defaults are the documented limits; tests shorten the times."""

    head_bytes: int = 64 * 1024  # request line and headers
    head_fields: int = 100
    head_s: float = 10.0
    body_bytes_per_s: int = 1000
    body_window_s: float = 10.0  # the rate is checked over each such period
    unread_s: float = 30.0  # how long a client may leave a response unread
    linger_s: float = 2.0  # how long the rest of a body is read after its response
    keep_alive_s: int = 75  # more than the idle time after which clients and proxies close a connection
    pipelined: int = 16  # requests that wait behind the one in progress
    connections: int = 2_000


def within_file_limit(limits: FrontLimits) -> FrontLimits:
    """Raise the soft limit of open files where the hard limit allows, and lower the connections to what fits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = limits.connections + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    fit = limits.connections if soft == resource.RLIM_INFINITY else soft - RESERVED_FILES
    return replace(limits, connections=max(MIN_CONNECTIONS, min(limits.connections, fit)))


def front_config(
    app: Any, *, limits: FrontLimits, observe_refusal: Callable[[str], None], **options: Any
) -> uvicorn.Config:
    """Configure uvicorn with the limits.  Call it inside the event loop that will serve."""
    front = Front(limits, observe_refusal=observe_refusal)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(front.handle_loop_error)
    protocol: Any = partial(FrontProtocol, front=front)  # uvicorn calls it as it would call the class
    return uvicorn.Config(
        app, http=protocol, ws="none", backlog=BACKLOG, timeout_keep_alive=limits.keep_alive_s, **options
    )


class Front:
    """Counts the connections of a server, and closes the oldest that waits for its client where there are too many."""

    def __init__(self, limits: FrontLimits, *, observe_refusal: Callable[[str], None]) -> None:
        self.limits = limits
        self._observe_refusal = observe_refusal
        self._open: set[FrontProtocol] = set()
        self._waiting: dict[FrontProtocol, None] = {}  # ordered by the time at which the server began to wait
        self._unlogged: Counter[str] = Counter()
        self._sweep: asyncio.TimerHandle | None = None

    def admit(self, connection: "FrontProtocol") -> bool:
        """Count a new connection; False where every other one is being answered."""
        if len(self._open) >= self.limits.connections:
            oldest = next(iter(self._waiting), None)
            if oldest is None:
                return False
            oldest.drop("connection-limit")
        self._open.add(connection)
        self.wait_for(connection)
        self._schedule(connection.loop)
        return True

    def wait_for(self, connection: "FrontProtocol") -> None:
        """Record that the server waits for this client from now on."""
        if connection in self._open:
            self._waiting.pop(connection, None)
            self._waiting[connection] = None

    def answer(self, connection: "FrontProtocol") -> None:
        """Record that this client waits for the server."""
        self._waiting.pop(connection, None)

    def forget(self, connection: "FrontProtocol") -> None:
        self._open.discard(connection)
        self._waiting.pop(connection, None)

    def refused(self, reason: str) -> None:
        """Count a refusal.  The log gets one line per reason and sweep, however many there are."""
        self._observe_refusal(reason)
        self._unlogged[reason] += 1

    def handle_loop_error(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Count failures to accept, of which asyncio reports hundreds at once, and log every other error as usual."""
        if context.get("message") == "socket.accept() out of system resource":
            self.refused("no-free-file")
            self._schedule(loop)
        else:
            loop.default_exception_handler(dict(context))

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._sweep is None:
            self._sweep = loop.call_later(SWEEP_S, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweep = None
        now_s = loop.time()
        for connection in list(self._waiting):
            connection.check(now_s)
        for reason, count in self._unlogged.items():
            log.warning("connections_refused", reason=reason, count=count)
        self._unlogged.clear()
        if self._open:
            self._schedule(loop)


class _Part(Enum):
    """What the server expects next from the client."""

    HEAD = auto()
    BODY = auto()
    NEXT = auto()  # another request, at any time


class FrontProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        front: Front,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._front = front
        self._limits = front.limits
        self._part = _Part.HEAD
        self._since_s = 0.0  # when the part began, or the period in which the rate of a body is checked
        self._received_bytes = 0  # of an unfinished head, or of a body in the period
        self._field_bytes = 0
        self._fields = 0
        self._unread_since_s: float | None = None
        self._refusal: ProblemError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if hasattr(transport, "max_size"):
            transport.max_size = READ_BYTES
        self._expect(_Part.HEAD)
        if not self._front.admit(self):
            self._refuse(_busy())

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._part is _Part.NEXT:
            self._expect(_Part.HEAD)
        began_before = self._part is _Part.HEAD
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # to WebSocket or HTTP/2, which the server need not follow
            self.cycle.keep_alive = False
        except httptools.HttpParserError:
            self._refuse(self._refusal or _malformed("the request is not HTTP/1.1"))
            return
        if began_before and self._part is _Part.HEAD:
            self._received_bytes += len(data)
            if self._received_bytes > self._limits.head_bytes:
                self._refuse(self._too_large())

    def on_message_begin(self) -> None:
        self._fields = self._field_bytes = 0
        if self._part is not _Part.HEAD:
            self._expect(_Part.HEAD)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_field(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        self._count_field(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        hosts = sum(name == b"host" for name, _value in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() != "1.0"):
            self._stop(_malformed("header Host: must be given exactly once"))
        if len(self.pipeline) >= self._limits.pipelined:
            self._stop(_malformed(f"more than {self._limits.pipelined} requests wait for their responses"))
        self._expect(_Part.BODY)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._received_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.cycle.more_body = False  # uvicorn leaves it where the response came first
        self._expect(_Part.NEXT)
        if self._is_answering():
            self._front.answer(self)
        else:
            self._front.wait_for(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_answering():
            self._since_s = self.loop.time()
            self._front.wait_for(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_since_s = self.loop.time()
        self._front.wait_for(self)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread_since_s = None
        if self._is_answering():
            self._front.answer(self)

    def check(self, now_s: float) -> None:
        """Close the connection if its client let a time limit pass."""
        limits, elapsed_s = self._limits, now_s - self._since_s
        if self._unread_since_s is not None:
            if now_s - self._unread_since_s >= limits.unread_s:
                self.drop("response-not-read")
        elif self._is_answering():
            return
        elif self._part is _Part.HEAD and elapsed_s >= limits.head_s:
            self._refuse(_timeout(f"the headers were not complete after {limits.head_s:g} s"))
        elif self._part is _Part.BODY:
            self._check_body(elapsed_s)

    def drop(self, reason: str) -> None:
        """Close the connection at once, without a response."""
        self._front.refused(reason)
        self._front.forget(self)
        self.transport.abort()

    def _check_body(self, elapsed_s: float) -> None:
        limits = self._limits
        if self.cycle.response_complete:
            if elapsed_s >= limits.linger_s:
                self.transport.close()
        elif self.flow.read_paused:  # the service has not taken what came
            self._expect(_Part.BODY)
        elif elapsed_s >= limits.body_window_s:
            if self._received_bytes < limits.body_bytes_per_s * elapsed_s:
                self._refuse(_timeout(f"the body came at less than {limits.body_bytes_per_s} bytes per second"))
            else:
                self._expect(_Part.BODY)

    def _expect(self, part: _Part) -> None:
        self._part = part
        self._since_s = self.loop.time()
        self._received_bytes = 0

    def _is_answering(self) -> bool:
        """Check whether the client waits for the response to a complete request."""
        cycle = self._current()
        return bool(self.pipeline) or (cycle is not None and not cycle.response_complete and not cycle.more_body)

    def _count_field(self, size_bytes: int) -> None:
        self._field_bytes += size_bytes
        if self._field_bytes > self._limits.head_bytes or self._fields > self._limits.head_fields:
            self._stop(self._too_large())

    def _stop(self, refusal: ProblemError) -> None:
        """Stop the parser, from one of its callbacks."""
        self._refusal = refusal
        raise refusal

    def _refuse(self, problem: ProblemError) -> None:
        """Close the connection, with a problem where no response has begun."""
        if self.transport.is_closing():
            return
        self._front.refused(problem.kind)
        self._front.forget(self)
        cycle = self._current()
        began = self._received_bytes or self._fields or self._part is _Part.BODY or self._refusal is not None
        may_write = cycle is None or cycle.response_complete or (cycle.more_body and not cycle.response_started)
        if may_write and (began or problem.status is not HTTPStatus.REQUEST_TIMEOUT):
            self.transport.write(self._rendered(problem))
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()

    def _current(self) -> RequestResponseCycle | None:
        """The newest request of the connection; uvicorn's annotation leaves None out."""
        return self.cycle

    def _rendered(self, problem: ProblemError) -> bytes:
        response = problem_response(problem, instance=None)
        fields = [*self.server_state.default_headers, *response.raw_headers, (b"connection", b"close")]
        head = b"".join(b"%s: %s\r\n" % field for field in fields)
        return STATUS_LINE[problem.status] + head + b"\r\n" + bytes(response.body)

    def _too_large(self) -> ProblemError:
        limits = self._limits
        return ProblemError(
            status=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            kind="headers-too-large",
            detail=f"request line and headers: allowed: {limits.head_bytes} bytes, {limits.head_fields} headers",
        )


def _malformed(detail: str) -> ProblemError:
    return ProblemError(status=HTTPStatus.BAD_REQUEST, kind="bad-request", detail=detail)


def _timeout(detail: str) -> ProblemError:
    return ProblemError(status=HTTPStatus.REQUEST_TIMEOUT, kind="request-timeout", detail=detail)


def _busy() -> ProblemError:
    return ProblemError(
        status=HTTPStatus.SERVICE_UNAVAILABLE,
        kind="too-many-connections",
        detail="every connection of the service is in use",
        headers={"Retry-After": "1"},
    )
