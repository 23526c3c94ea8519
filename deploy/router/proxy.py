"""One request through the router, from its arrival to the last byte of its response."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from deploy.common.clock import Clock
from deploy.router.async_scheduler import AsyncScheduler
from deploy.router.errors import RefusalError, UpstreamError
from deploy.router.metrics import RouterMetrics
from deploy.router.openai import Headers, ProxiedRequest
from deploy.router.response_stream import ResponseReader
from deploy.router.scheduler import Arrival, Ticket
from fleetwright.serve import Send

# Headers that end at the router: those of one connection (RFC 9110, section 7.6.1).  All others pass unchanged.
HOP_BY_HOP_HEADERS = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# The router has read the body, and the host is another.
DROPPED_REQUEST_HEADERS = HOP_BY_HOP_HEADERS | {b"expect", b"host"}
ROUTE_HEADER, PLAN_HEADER = b"x-fleetwright-route", b"x-fleetwright-plan"
GONE = "gone"  # outcome label: the caller disconnected


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    status: int
    headers: Headers


class UpstreamResponse(Protocol):
    head: Head

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body's parts as they arrive.  Raise UpstreamError where the response fails."""

    def close(self) -> None:
        """Cancel the request at the engine where it has not ended."""


class Upstream(Protocol):
    async def send(self, request: ProxiedRequest) -> UpstreamResponse:
        """Send a request and return with the head of the response, or raise UpstreamError."""

    def abandon(self) -> None:
        """The deployment has no replica: fail requests without a response, so that they go to another route."""

    async def close(self) -> None: ...


def request_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    return _without(headers, DROPPED_REQUEST_HEADERS)


def response_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers for the caller; names in lower case, as ASGI requires."""
    return _without([(name.lower(), value) for name, value in headers], HOP_BY_HOP_HEADERS)


@dataclass(slots=True, kw_only=True)
class RequestForwarder:
    """Waits for a route, sends the request, forwards the response, and counts the outcome."""

    request: ProxiedRequest
    arrival: Arrival
    async_scheduler: AsyncScheduler
    upstreams: Mapping[str, Upstream]
    metrics: RouterMetrics
    clock: Clock
    arrived_s: float
    send: Send
    ended: bool = False
    _reader: ResponseReader = field(default_factory=lambda: ResponseReader(streamed=False))
    _ticket: Ticket = field(init=False)

    async def run(self) -> None:
        """Run to the end of the response.  Raise RefusalError where no part of a response was sent."""
        try:
            self._ticket = await self.async_scheduler.start(self.arrival)
        except RefusalError as error:
            self.metrics.refused(self.arrival.priority, error.outcome)
            raise
        except asyncio.CancelledError:
            self.metrics.refused(self.arrival.priority, GONE)
            raise
        outcome = GONE
        try:
            outcome = await self._forward()
        except RefusalError as error:
            outcome = error.outcome
            if isinstance(error, UpstreamError):
                self.async_scheduler.failed(self._ticket)
            raise
        finally:
            self._end(outcome)

    async def _forward(self) -> str:
        response, chunks, first = await self._send_with_retry()
        try:
            await self._begin(response.head)
            await self._forward_chunk(first)
            async for chunk in chunks:
                await self._forward_chunk(chunk)
        except UpstreamError as error:
            await self._abort(error)
            return "lost"
        finally:
            response.close()
        self.ended = True
        await self.send({"type": "http.response.body", "body": b""})
        return "ok"

    async def _send_with_retry(self) -> tuple[UpstreamResponse, AsyncIterator[bytes], bytes]:
        if self._ticket.started_s == self._ticket.since_s:
            self.metrics.overhead(self.clock.steady_s() - self.arrived_s)
        try:
            return await self._send_once()
        except UpstreamError:
            _stop_if_requested()
            failed, self._ticket = self._ticket, replace(self._ticket, route=None)  # `retry` has the slot from here
            self._ticket = await self.async_scheduler.retry(failed)
            return await self._send_once()

    async def _send_once(self) -> tuple[UpstreamResponse, AsyncIterator[bytes], bytes]:
        """Run up to the first byte of the body; until then the request may be retried."""
        response = await self.upstreams[self._ticket.route or ""].send(self.request)
        try:
            chunks = response.chunks()
            return response, chunks, await anext(chunks, b"")
        except BaseException:
            response.close()
            raise

    async def _begin(self, head: Head) -> None:
        headers = response_headers(head.headers)
        known = dict(headers)
        self._reader = ResponseReader(
            streamed=known.get(b"content-type", b"").startswith(b"text/event-stream"),
            readable=known.get(b"content-encoding", b"identity") == b"identity",
        )
        headers.append((ROUTE_HEADER, (self._ticket.route or "").encode()))
        headers.append((PLAN_HEADER, self._ticket.plan.encode()))
        await self.send({"type": "http.response.start", "status": head.status, "headers": headers})

    async def _forward_chunk(self, chunk: bytes) -> None:
        if chunk:
            self._reader.observe(chunk, now_s=self.clock.steady_s())
            await self.send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _abort(self, error: UpstreamError) -> None:
        """The response has begun and failed.  A stream ends with an error event, and the last part of any body is
        not sent: the server closes the connection, so that clients find the body incomplete."""
        self.ended = True
        if self._reader.streamed:
            body = {"error": {"message": str(error), "type": error.kind, "param": None, "code": None}}
            event = b"\n\ndata: " + json.dumps(body).encode() + b"\n\n"
            await self.send({"type": "http.response.body", "body": event, "more_body": True})

    def _end(self, outcome: str) -> None:
        self.ended = True
        ticket, reader, whole = self._ticket, self._reader, outcome == "ok"
        usage = reader.usage() if whole else None
        self.async_scheduler.done(ticket, usage=usage, succeeded=whole)
        self.metrics.ended(ticket, outcome)
        if reader.streamed and reader.first_s is not None:
            token_s = reader.token_s(usage.output_tokens if usage else reader.events)
            self.metrics.streamed(ticket, first_s=reader.first_s - self.arrived_s, token_s=token_s)


def _without(headers: Headers, left_out: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    named = {
        option.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    }
    if named:
        left_out = left_out | named
    return [(name, value) for name, value in headers if name.lower() not in left_out]


def _stop_if_requested() -> None:
    """Stop for a disconnected caller, who counts as gone and not as failed, even at the moment of a failure."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
