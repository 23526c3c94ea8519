"""Wraps every request: id, log line, metrics, and a problem instead of a bare 500.

Plain ASGI, outermost first.  Starlette's BaseHTTPMiddleware copies bodies and loses context variables.
"""

import asyncio
import logging
import re
import time
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.server.access_audit import Access, AccessAudit
from api.server.context import current_request_id, request_context
from api.server.metrics import ServiceMetrics
from api.server.problems import PROBLEM_KIND, RETRY_AFTER_S, ProblemError, problem_response, to_problem
from api.server.settings import is_loopback
from api.store import new_id
from api.tracing import TRACEPARENT, Span, SpanKind, current_trace_id, span

REQUEST_ID = "x-request-id"
REQUEST_ID_FORM = re.compile(r"[A-Za-z0-9._-]{1,64}")
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "POST", "DELETE", "PATCH", "TRACE"})
WHOLE_BYTES = 1024 * 1024  # larger bodies are sent in chunks
CHUNK_BYTES = 256 * 1024
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
ROUTINE_PATHS = frozenset({"/livez", "/readyz", "/metrics"})
HEADERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",  # shared caches must not store plans and prices; ETags still save transfers
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}

log = structlog.get_logger("fleetwright.request")


class RequestObserver:
    """The outermost middleware: request id, log line, metrics, and a problem for every unhandled exception."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: ServiceMetrics,
        access_audit: AccessAudit,
        now: Callable[[], datetime],
        stopping: asyncio.Event,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._access_audit = access_audit
        self._now = now
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if REQUEST_ID_FORM.fullmatch(given) else new_id(self._now())
        with request_context(request_id):
            if _is_probe(scope["path"]):
                await self._handle(scope, receive, send, request_id=request_id)
                return
            parent = Headers(scope=scope).get(TRACEPARENT)
            with span(
                _method(scope), kind=SpanKind.SERVER, parent=parent, fleetwright__request_id=request_id
            ) as traced:
                if (trace_id := current_trace_id()) is not None:
                    structlog.contextvars.bind_contextvars(trace_id=trace_id)
                await self._handle(scope, receive, send, request_id=request_id, traced=traced)

    async def _handle(
        self, scope: Scope, receive: Receive, send: Send, *, request_id: str, traced: Span | None = None
    ) -> None:
        started_s = time.perf_counter()
        status = 0

        async def send_observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = request_id
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, send_observed)
        except ClientDisconnect:
            log.debug("client_left")
        except asyncio.CancelledError:
            if status or not self._stopping.is_set():
                raise
            await problem_response(_shutting_down(), instance=scope["path"])(scope, receive, send_observed)
        except Exception as error:  # a defect of the service
            log.exception("defect")
            if status == 0:
                await problem_response(to_problem(error), instance=scope["path"])(scope, receive, send_observed)
        finally:
            self._end(scope, status=status or 499, duration_s=time.perf_counter() - started_s)
            if traced is not None:
                _describe(traced, scope, status=status or 499)

    def _end(self, scope: Scope, *, status: int, duration_s: float) -> None:
        route, method = _route(scope), _method(scope)
        problem = scope.get("state", {}).get(PROBLEM_KIND)
        self._metrics.observe_request(method=method, route=route, status=status, duration_s=duration_s, problem=problem)
        self._access_audit.observe(
            Access(
                actor=structlog.contextvars.get_contextvars().get("actor"),
                address=(scope.get("client") or ("unknown",))[0],
                method=method,
                route=route,
                path=scope["path"],
                status=status,
                request_id=current_request_id(),
            )
        )
        log.log(
            logging.DEBUG if status < HTTPStatus.BAD_REQUEST and _is_routine(scope["path"]) else logging.INFO,
            "request",
            method=scope["method"],
            path=scope["path"],
            route=route,
            status=int(status),
            duration_ms=round(duration_s * 1000, 2),
        )


def _route(scope: Scope) -> str:
    """Return the route template: the path itself would create one series per plan."""
    return getattr(scope.get("route"), "path", "unmatched")


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in METHODS else "other"  # a caller may send any method


def _describe(traced: Span, scope: Scope, *, status: int) -> None:
    """Name the span of a request as OpenTelemetry's conventions do."""
    traced.rename(f"{_method(scope)} {_route(scope)}")
    traced.set(
        http__request__method=_method(scope),
        http__route=_route(scope),
        url__path=scope["path"],
        http__response__status_code=int(status),
        fleetwright__actor=structlog.contextvars.get_contextvars().get("actor"),
    )
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        traced.fail(f"status {status}")


def _shutting_down() -> ProblemError:
    return ProblemError(
        status=HTTPStatus.SERVICE_UNAVAILABLE,
        kind="shutting-down",
        detail="the service stopped before this request was done; send it again",
        headers={"Retry-After": RETRY_AFTER_S, "Connection": "close"},
    )


def _is_routine(path: str) -> bool:
    """Check whether a request is a probe, a scrape or from this process: frequent, so logged only on failure."""
    actor: str = structlog.contextvars.get_contextvars().get("actor", "")
    return _is_probe(path) or actor.startswith("system:")


def _is_probe(path: str) -> bool:
    return path in ROUTINE_PATHS or path.startswith("/metrics/")


class HeadAsGet:
    """Responds to HEAD as to GET, without the body (RFC 9110, 9.3.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        as_get = {**scope, "method": "GET"}  # the server keeps its own scope, so that it sends no body

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(as_get, receive, send_head)
        finally:
            if "route" in as_get:
                scope["route"] = as_get["route"]  # for the log and the metrics


class ChunkedBodies:
    """Sends large bodies in parts, so that a slow client holds only one of them in the server's buffer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_parts(message: Message) -> None:
            body = message.get("body", b"")
            if message["type"] != "http.response.body" or len(body) <= WHOLE_BYTES:
                await send(message)
                return
            for start in range(0, len(body), CHUNK_BYTES):
                end = start + CHUNK_BYTES
                more = end < len(body) or message.get("more_body", False)
                await send({"type": "http.response.body", "body": body[start:end], "more_body": more})

        await self._app(scope, receive, send_parts)


class LoopbackOnly:
    """Protects a service without tokens from web pages.

    A page in the user's browser can send requests to loopback.  This middleware refuses DNS rebinding by `Host` and
    cross-site writes by `Origin`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(scope)) is not None:
            problem = ProblemError(status=HTTPStatus.FORBIDDEN, kind="not-from-here", detail=refusal)
            await problem_response(problem, instance=scope["path"])(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        if not is_loopback(_host_of(f"//{headers.get('host', '')}")):
            return "without tokens this service accepts only a loopback Host"
        origin = headers.get("origin")
        if origin is not None and scope["method"] not in SAFE_METHODS and not is_loopback(_host_of(origin)):
            return "without tokens this service takes no writes from other sites' pages"
        return None


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # unclosed brackets
        return ""
