"""Tests that callers count whole responses and report the others."""

import asyncio
import json
from collections.abc import Callable

import httpx
import pytest

from tests.testbed.chat_load import CALLERS, ChatLoad, calling

pytestmark = pytest.mark.anyio
TOKENS = 3
WORD, END = 'data: {"choices": [{"delta": {"content": "x"}}]}\n\n', "data: [DONE]\n\n"
STREAM, DOCUMENT = {"content-type": "text/event-stream"}, {"usage": {"completion_tokens": TOKENS}}
Answer = Callable[[bool], httpx.Response]


def load_of(answer: Answer, **more: object) -> ChatLoad:
    """Call a service with these responses, with and without a stream."""

    async def answered(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        return answer(json.loads(request.content)["stream"]) if request.method == "POST" else httpx.Response(200)

    http = httpx.AsyncClient(transport=httpx.MockTransport(answered))
    return ChatLoad(http=http, url="http://service", tokens=TOKENS, **more)  # type: ignore[arg-type]


def well(stream: bool) -> httpx.Response:  # noqa: FBT001 - as Answer has it
    if stream:
        return httpx.Response(200, text=TOKENS * WORD + END, headers=STREAM)
    return httpx.Response(200, json=DOCUMENT)


async def test_complete_responses_are_counted_and_unstreamed_ones_passed_to_the_callback() -> None:
    heard: list[object] = []
    async with calling(load_of(well, hear=heard.append)) as load:
        await load.some_more()
    assert load.faults == []
    assert load.whole > len(heard) >= CALLERS
    assert all(each == DOCUMENT for each in heard)


@pytest.mark.parametrize(
    "broken",
    [
        httpx.Response(200, text=2 * WORD + END, headers=STREAM),
        httpx.Response(200, text=TOKENS * WORD, headers=STREAM),
        httpx.Response(200, text=2 * WORD + "data: {}\n\n" + END, headers=STREAM),
        httpx.Response(200, json={"usage": {"completion_tokens": 2}}),
        httpx.Response(503, text=TOKENS * WORD + END, headers=STREAM),
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

    def answer(stream: bool) -> httpx.Response:  # noqa: FBT001 - as Answer has it
        if (failure := next(failures, None)) is not None:
            raise failure
        return well(stream)

    async with calling(load_of(answer, streams=(True,))) as load:
        while load.whole < CALLERS:
            await asyncio.sleep(0)
    assert load.faults == ["ReadError('cut off')"]
