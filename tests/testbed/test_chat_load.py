"""Tests that callers count whole responses and report the others."""

import asyncio
import json
from collections.abc import Callable

import httpx
import pytest

from tests.testbed.chat_load import CALLERS, ChatLoad, calling

pytestmark = pytest.mark.anyio
TOKENS = 3
TOKEN, END = 'data: {"choices": [{"delta": {"content": "x"}}]}\n\n', "data: [DONE]\n\n"
STREAM, DOCUMENT = {"content-type": "text/event-stream"}, {"usage": {"completion_tokens": TOKENS}}
Respond = Callable[[bool], httpx.Response]


def load_of(respond: Respond, **more: object) -> ChatLoad:
    """Call a service with these responses, with and without a stream."""

    async def handle(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        return respond(json.loads(request.content)["stream"]) if request.method == "POST" else httpx.Response(200)

    http = httpx.AsyncClient(transport=httpx.MockTransport(handle))
    return ChatLoad(http=http, url="http://service", tokens=TOKENS, **more)  # type: ignore[arg-type]


def complete_response(stream: bool) -> httpx.Response:  # noqa: FBT001 - as Respond defines it
    if stream:
        return httpx.Response(200, text=TOKENS * TOKEN + END, headers=STREAM)
    return httpx.Response(200, json=DOCUMENT)


async def test_complete_responses_are_counted_and_unstreamed_ones_passed_to_the_callback() -> None:
    received: list[object] = []
    async with calling(load_of(complete_response, on_response=received.append)) as load:
        await load.some_more()
    assert load.faults == []
    assert load.whole > len(received) >= CALLERS
    assert all(each == DOCUMENT for each in received)


@pytest.mark.parametrize(
    "broken",
    [
        httpx.Response(200, text=2 * TOKEN + END, headers=STREAM),
        httpx.Response(200, text=TOKENS * TOKEN, headers=STREAM),
        httpx.Response(200, text=2 * TOKEN + "data: {}\n\n" + END, headers=STREAM),
        httpx.Response(200, json={"usage": {"completion_tokens": 2}}),
        httpx.Response(503, text=TOKENS * TOKEN + END, headers=STREAM),
    ],
    ids=["a token is missing", "no end", "an event without a token", "too short", "refused"],
)
async def test_an_incomplete_response_is_a_fault(broken: httpx.Response) -> None:
    async with calling(load_of(lambda _stream: broken)) as load:
        await load.some_more()
    assert load.whole == 0
    assert load.faults[0].startswith(str(broken.status_code))


async def test_a_failed_call_is_a_fault_and_the_caller_continues() -> None:
    failures = iter([httpx.ReadError("cut off")])

    def respond(stream: bool) -> httpx.Response:  # noqa: FBT001 - as Respond defines it
        if (failure := next(failures, None)) is not None:
            raise failure
        return complete_response(stream)

    async with calling(load_of(respond, streams=(True,))) as load:
        while load.whole < CALLERS:
            await asyncio.sleep(0)
    assert load.faults == ["ReadError('cut off')"]
