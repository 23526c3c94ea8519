"""Both clients follow events over several connections, and begin each after the last number that arrived."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import httpx
import pytest

from api.client import AsyncClient, Client, ConnectionFailedError, GoneError, Retries
from api.schemas.events import LAST_EVENT_ID
from tests.api.client.conftest import URL
from tests.api.client.wire import problem

PROMPT = Retries(wait_first_s=0.0, max_wait_s=0.0)
Take = Callable[[httpx.BaseTransport, int], list[int]]


def event(number: int) -> str:
    data = (
        f'{{"id":{number},"type":"plan.created","subject":"plans/p","at":"2026-11-21T12:00:00Z","project":null,"x":1}}'
    )
    return f"id: {number}\nevent: change\ndata: {data}\n\n"


class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
    """Sends its parts, and loses the connection."""

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        yield from (part.encode() for part in self._parts)
        raise httpx.ReadError("broken on purpose")

    async def __aiter__(self) -> Any:
        for part in self:
            yield part


class Replies:
    """Gives one reply per connection, and keeps from where each began."""

    def __init__(self, *replies: httpx.Response | type[httpx.TransportError]) -> None:
        self._replies = iter(replies)
        self.begins: list[str | None] = []

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._reply)

    def _reply(self, request: httpx.Request) -> httpx.Response:
        self.begins.append(request.headers.get(LAST_EVENT_ID))
        reply = next(self._replies)
        if isinstance(reply, httpx.Response):
            return reply
        raise reply("broken on purpose", request=request)


def stream(*parts: str) -> httpx.Response:
    return httpx.Response(200, stream=Broken(*parts))


def take_blocking(transport: httpx.MockTransport, count: int, **options: Any) -> list[int]:
    with Client(URL, transport=transport, retries=PROMPT) as client:
        return [each.id for each in islice(client.follow_events(**options), count)]


def take_asynchronous(transport: httpx.MockTransport, count: int, **options: Any) -> list[int]:
    async def take() -> list[int]:
        found: list[int] = []
        async with AsyncClient(URL, transport=transport, retries=PROMPT) as client:
            async for each in client.follow_events(**options):
                found.append(each.id)
                if len(found) == count:
                    break
        return found

    return asyncio.run(take())


@pytest.fixture(params=[take_blocking, take_asynchronous], ids=["blocking", "asynchronous"])
def take(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_lost_connection_resumes_after_the_last_whole_event(take: Any) -> None:
    replies = Replies(
        stream("retry: 1000\nid: 4\n\n", event(5), event(7)[:-10]),
        httpx.ConnectError,
        problem(503, retry_after="0"),
        stream(event(7), ": keep-alive\nid: 9\n\n"),
        httpx.Response(200, text=event(12)),
        stream(event(13)),
    )
    assert take(replies.transport, 4, after=4, types=("plan.",)) == [5, 7, 12, 13]
    assert replies.begins == [None, "5", "5", "5", "9", "12"]


def test_a_stream_that_broke_before_its_first_event_resumes_at_its_beginning(take: Any) -> None:
    replies = Replies(stream("retry: 1000\nid: 4\n\n"), stream(event(5)))
    assert take(replies.transport, 1) == [5]
    assert replies.begins == [None, "4"]


def test_without_follow_the_iteration_ends_with_the_response(take: Any) -> None:
    replies = Replies(stream(event(1)), httpx.Response(200, text=event(2)))
    assert take(replies.transport, 9, after=0, follow=False) == [1, 2]


def test_events_that_are_gone_and_a_service_that_stays_away_are_errors(take: Any) -> None:
    with pytest.raises(GoneError, match="read the state again"):
        take(Replies(problem(410, detail="read the state again")).transport, 1, after=7)
    with pytest.raises(ConnectionFailedError):
        take(Replies(stream(event(1)), *[httpx.ConnectError] * 4).transport, 2)
