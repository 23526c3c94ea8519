"""One request through the router, from its arrival to the last byte of its response."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping

from deploy.common.clock import Clock
from deploy.router.async_scheduler import AsyncScheduler
from deploy.router.errors import RefusalError, UpstreamError
from deploy.router.headers import answer_headers
from deploy.router.metrics import RouterMetrics
from deploy.router.openai import Question
from deploy.router.response_stream import AnswerReader
from deploy.router.scheduler import Arrival
from deploy.router.upstream import Answer, Head, Upstream
from fleetwright.asgi import Send

ROUTE_HEADER, PLAN_HEADER = b"x-fleetwright-route", b"x-fleetwright-plan"
GONE = "gone"  # outcome label: the caller disconnected


class Passage:
    """Waits for a route, sends the request, forwards the response, and counts the outcome."""

    def __init__(
        self,
        *,
        question: Question,
        arrival: Arrival,
        front: AsyncScheduler,
        upstreams: Mapping[str, Upstream],
        metrics: RouterMetrics,
        clock: Clock,
        arrived_s: float,
        send: Send,
    ) -> None:
        self._question = question
        self._arrival = arrival
        self._front = front
        self._upstreams = upstreams
        self._metrics = metrics
        self._clock = clock
        self._send = send
        self._arrived_s = arrived_s
        self._reader = AnswerReader(streamed=False)
        self.ended = False

    async def run(self) -> None:
        """Run to the end of the response.  Raise RefusalError where no part of a response was sent."""
        try:
            self._ticket = await self._front.start(self._arrival)
        except RefusalError as error:
            self._metrics.refused(self._arrival.priority, error.outcome)
            raise
        except asyncio.CancelledError:
            self._metrics.refused(self._arrival.priority, GONE)
            raise
        outcome = GONE
        try:
            outcome = await self._forward()
        except UpstreamError as error:
            outcome = error.outcome
            self._front.failed(self._ticket)
            raise
        finally:
            self._end(outcome)

    async def _forward(self) -> str:
        answer, chunks, first = await self._asked_twice()
        try:
            await self._begin(answer.head)
            await self._pass(first)
            async for chunk in chunks:
                await self._pass(chunk)
        except UpstreamError as error:
            await self._break_off(error)
            return "lost"
        finally:
            answer.close()
        self.ended = True
        await self._send({"type": "http.response.body", "body": b""})
        return "ok"

    async def _asked_twice(self) -> tuple[Answer, AsyncIterator[bytes], bytes]:
        if self._ticket.started_s == self._ticket.since_s:
            self._metrics.overhead(self._clock.steady_s() - self._arrived_s)
        try:
            return await self._asked()
        except UpstreamError:
            _stop_if_requested()
            self._ticket = self._front.retry(self._ticket)
            return await self._asked()

    async def _asked(self) -> tuple[Answer, AsyncIterator[bytes], bytes]:
        """Run up to the first byte of the body; until then the request may be retried."""
        answer = await self._upstreams[self._ticket.route or ""].ask(self._question)
        try:
            chunks = answer.chunks()
            return answer, chunks, await anext(chunks, b"")
        except BaseException:
            answer.close()
            raise

    async def _begin(self, head: Head) -> None:
        headers = answer_headers(head.headers)
        known = dict(headers)
        self._reader = AnswerReader(
            streamed=known.get(b"content-type", b"").startswith(b"text/event-stream"),
            readable=known.get(b"content-encoding", b"identity") == b"identity",
        )
        headers.append((ROUTE_HEADER, (self._ticket.route or "").encode()))
        headers.append((PLAN_HEADER, self._ticket.plan.encode()))
        await self._send({"type": "http.response.start", "status": head.status, "headers": headers})

    async def _pass(self, chunk: bytes) -> None:
        if chunk:
            self._reader.observe(chunk, now_s=self._clock.steady_s())
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _break_off(self, error: UpstreamError) -> None:
        """The response has begun and failed.  A stream ends with an error event, and the last part of any body is
        not sent: the server closes the connection, so that clients find the body incomplete."""
        self.ended = True
        if self._reader.streamed:
            body = {"error": {"message": str(error), "type": error.kind, "param": None, "code": None}}
            event = b"\n\ndata: " + json.dumps(body).encode() + b"\n\n"
            await self._send({"type": "http.response.body", "body": event, "more_body": True})

    def _end(self, outcome: str) -> None:
        self.ended = True
        ticket, reader, whole = self._ticket, self._reader, outcome == "ok"
        usage = reader.usage() if whole else None
        self._front.done(ticket, usage=usage, answered=whole)
        self._metrics.ended(ticket, outcome)
        if reader.streamed and reader.first_s is not None:
            token_s = reader.token_s(usage.output_tokens if usage else reader.events)
            self._metrics.streamed(ticket, first_s=reader.first_s - self._arrived_s, token_s=token_s)


def _stop_if_requested() -> None:
    """Stop for a disconnected caller, who counts as gone and not as failed, even at the moment of a failure."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
