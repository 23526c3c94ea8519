"""The router as an ASGI application: read, wait for a route, forward, return.  Bodies stay unchanged both ways."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote

from deploy.common.clock import Clock
from deploy.router.async_scheduler import AsyncScheduler
from deploy.router.errors import BadRequestError, RefusalError, TooLargeError
from deploy.router.metrics import RouterMetrics
from deploy.router.openai import ProxiedRequest, arrival_of
from deploy.router.proxy import RequestForwarder, Upstream, request_headers
from fleetwright.serve import Receive, Send, below
from power.controls import Priority

MAX_BODY_BYTES = 64 * 1024 * 1024  # a prompt with some images in it

# The path of a request by RFC 9112 (section 3.2.1).  Anything else that a server accepts, such as an address,
# would become part of the upstream's address.
_PATH = re.compile(r"/[^\x00-\x20\x7f#]*")
_QUERY = re.compile(r"[^\x00-\x20\x7f#]*")


class _GoneError(Exception):
    """The caller disconnected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingress:
    async_scheduler: AsyncScheduler
    upstreams: Mapping[str, Upstream]
    metrics: RouterMetrics
    clock: Clock
    max_body_bytes: int = MAX_BODY_BYTES

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        try:
            request = await self._read_request(scope, receive)
            arrived_s = self.clock.steady_s()
            arrival = arrival_of(request)
        except RefusalError as error:
            self.metrics.refused(Priority.HIGH, error.outcome)
            await refuse(error, send)
            return
        except _GoneError:
            return
        forwarder = RequestForwarder(
            request=request,
            arrival=arrival,
            async_scheduler=self.async_scheduler,
            upstreams=self.upstreams,
            metrics=self.metrics,
            clock=self.clock,
            arrived_s=arrived_s,
            send=send,
        )
        try:
            async with _unless_gone(receive, forwarder):
                await forwarder.run()
        except RefusalError as error:
            await refuse(error, send)
        except _GoneError:
            return

    async def _read_request(self, scope: Mapping[str, Any], receive: Receive) -> ProxiedRequest:
        headers = scope["headers"]
        announced = next((value for name, value in headers if name == b"content-length"), b"0")
        if announced.isdigit() and int(announced[:20]) > self.max_body_bytes:
            raise self._too_large()
        return ProxiedRequest(
            method=scope["method"],
            target=_target(scope),
            headers=request_headers(headers),
            body=await self._body(receive),
        )

    async def _body(self, receive: Receive) -> bytes:
        parts, received_bytes = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise _GoneError
            part = message.get("body", b"")
            received_bytes += len(part)
            if received_bytes > self.max_body_bytes:
                raise self._too_large()
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> TooLargeError:
        return TooLargeError(f"the body is over {self.max_body_bytes} bytes")


@asynccontextmanager
async def _unless_gone(receive: Receive, forwarder: RequestForwarder) -> AsyncIterator[None]:
    inside, gone = cast("asyncio.Task[None]", asyncio.current_task()), False

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        if not forwarder.ended:  # servers send this after the last byte too
            gone = True
            inside.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
        if gone:
            inside.uncancel()  # the block ended before the cancellation
    except asyncio.CancelledError:
        if gone and not inside.uncancel():
            raise _GoneError from None
        raise
    finally:
        watching.cancel()


def _target(scope: Mapping[str, Any]) -> str:
    """Return path and query.  Raise BadRequestError where the target is not a path."""
    raw, query = scope.get("raw_path"), scope["query_string"].decode("latin-1")
    path = raw.decode("latin-1") if raw else quote(scope["path"])
    path = below(scope.get("root_path", ""), path)
    if not _PATH.fullmatch(path) or not _QUERY.fullmatch(query):
        raise BadRequestError("the request's target must be a path that begins with /")
    return f"{path}?{query}" if query else path


async def refuse(error: RefusalError, send: Send) -> None:
    await send({"type": "http.response.start", "status": error.status, "headers": error.headers})
    await send({"type": "http.response.body", "body": error.body})
