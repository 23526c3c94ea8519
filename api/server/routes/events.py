"""`/v1/events`: what changes, as server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import StringConstraints
from starlette.types import Receive, Scope, Send

from api.schemas.events import EVENT_STREAM, LAST_EVENT_ID, ChangeEvent
from api.schemas.tokens import TokenScope
from api.server.auth import Reader, RequireScope
from api.server.cursors import INT32_MAX
from api.server.events import EventFilter
from api.server.openapi import Responses, problems
from api.server.problems import ProblemError, invalid
from api.server.projects import ProjectOf
from api.server.route import ServiceRoute
from api.server.service import Service, ServiceOf
from api.store import DatabaseUnavailableError

KEEP_ALIVE_S: Final = 15.0
RECONNECT_MS: Final = 1_000
READER: Final = RequireScope(TokenScope.READ)
TYPES = StringConstraints(pattern=r"^[a-z0-9._-]{1,64}(,[a-z0-9._-]{1,64}){0,15}$")
Position = Annotated[int | None, Query(ge=0, le=INT32_MAX, description="Begin after this event; none: at the newest.")]
EVENT_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "The number of the event."},
        "event": {"const": "change"},
        "data": {"type": "string", "description": f"{ChangeEvent.__name__} as JSON."},
    },
}
EVENTS: Responses = {
    200: {
        "description": "Events `change`.  Each `id`, also one without an event, is a place to resume after.",
        "content": {EVENT_STREAM: {"schema": EVENT_SCHEMA}},
    }
}

router = APIRouter(tags=["events"], route_class=ServiceRoute)


@router.get(
    "/v1/events",
    name="Follow changes",
    operation_id="follow_events",
    response_class=Response,
    responses=EVENTS | problems(410),
)
async def follow_events(
    *,
    request: Request,
    service: ServiceOf,
    principal: Reader,
    project: ProjectOf,
    after: Position = None,
    last_event_id: Annotated[
        str | None, Header(alias=LAST_EVENT_ID, max_length=10, description="As `after`, and before it.")
    ] = None,
    types: Annotated[
        Annotated[str, TYPES] | None, Query(alias="type", description="Beginnings of types, separated by commas.")
    ] = None,
    follow: Annotated[bool, Query(description="Wait for new events; else end with the newest.")] = False,
) -> Response:
    """What the caller may read of the changes, in their order.  After a lost connection the header resumes without a
    gap, on any replica.  410: the database has no longer every event after that number; read the state again.
    """
    position = _number(last_event_id) if last_event_id else after
    head = await service.events.head()
    if position is not None:
        await service.events.refuse_gone(position, head=head)
    stream = _Stream(
        request=request,
        service=service,
        chosen=EventFilter(project, tuple(types.split(",")) if types is not None else ()),
        position=head if position is None else position,
        end=None if follow else head,
    )
    return _FollowerResponse(service, principal.actor, stream)


@dataclass(slots=True, kw_only=True)
class _Stream:
    request: Request
    service: Service
    chosen: EventFilter
    position: int  # everything up to here was sent
    end: int | None  # None: the stream goes on

    async def text(self) -> AsyncIterator[str]:
        """Yield the events as text.  The stream ends where the database or the token fails: the client resumes."""
        yield f"retry: {RECONNECT_MS}\nid: {self.position}\n\n"
        clock_s = asyncio.get_running_loop().time
        checked_s = sent_s = clock_s()
        feed = self.service.events
        # Without `follow` the end of the response would mean that all events were sent.
        with suppress(*((DatabaseUnavailableError, ProblemError) if self.end is None else ())):
            while not feed.closing and (self.end is None or self.position < self.end):
                # Shielded: a cancelled query leaks its connection.
                found = await asyncio.shield(feed.after(self.position, follow=self.end is None))
                if found:
                    events = [self.chosen.event(record) for record in found if self._is_wanted(record.seq)]
                    self.position = found[-1].seq
                    if text := "".join(map(_text_of, filter(None, events))):
                        sent_s = clock_s()
                        yield text
                elif self.end is not None:
                    return
                else:
                    await feed.wait(self.position, timeout_s=KEEP_ALIVE_S)
                if clock_s() - checked_s >= KEEP_ALIVE_S:
                    await asyncio.shield(READER.validate(self.request))  # the token may be revoked meanwhile
                    checked_s = clock_s()
                if clock_s() - sent_s >= KEEP_ALIVE_S:
                    sent_s = clock_s()
                    yield f": keep-alive\nid: {self.position}\n\n"

    def _is_wanted(self, seq: int) -> bool:
        return self.end is None or seq <= self.end


class _FollowerResponse(StreamingResponse):
    """Counts as a follower from its first byte to its end."""

    def __init__(self, service: Service, actor: str, stream: _Stream) -> None:
        super().__init__(stream.text(), media_type=EVENT_STREAM, headers={"X-Accel-Buffering": "no"})
        self._feed, self._actor = service.events, actor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._feed.follower(self._actor):
            await super().__call__(scope, receive, send)


def _text_of(event: ChangeEvent) -> str:
    return f"id: {event.id}\nevent: change\ndata: {event.model_dump_json()}\n\n"


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > INT32_MAX:
        raise invalid(f"header.{LAST_EVENT_ID}", f"allowed: the id of an event, got {text!r}")
    return int(text)
