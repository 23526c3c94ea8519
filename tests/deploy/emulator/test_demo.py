"""The load of the demonstration: each request is counted either as answered or as lost."""

import asyncio
import json
from collections import Counter

import httpx
import numpy as np
import pytest

from deploy.emulator.demo import Load, percentile_s, sending
from fleet.sizes.histogram import SizeBuckets

pytestmark = pytest.mark.anyio

BUCKETS = SizeBuckets(input_tokens=(10, 30), output_tokens=(5,), share=((0.75,), (0.25,)))


def load(answer: httpx.MockTransport) -> Load:
    http = httpx.AsyncClient(transport=answer)
    return Load(http=http, url="http://router", buckets=BUCKETS, rng=np.random.default_rng(1), rate_rps=1e6)


def whole(request: httpx.Request) -> httpx.Response:
    body = json.loads(request.content)
    timing = {"ttft_s": 0.5, "e2e_s": float(len(body["prompt"]))}
    return httpx.Response(200, json={"usage": {"completion_tokens": body["max_tokens"]}, "emulator": timing})


async def test_request_sizes_follow_the_histogram() -> None:
    async with sending(load(httpx.MockTransport(whole))) as found:
        while len(found.completed) < 400:
            await asyncio.sleep(0)
    assert (found.lost, found.sent) == ([], len(found.completed))
    counts = Counter(each.e2e_s for each in found.completed)
    assert set(counts) == {10.0, 30.0}
    assert counts[10.0] > 2 * counts[30.0]


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(503, text="no replica"),
        httpx.Response(200, json={"usage": {"completion_tokens": 4}, "emulator": {"ttft_s": 1.0, "e2e_s": 1.0}}),
        httpx.Response(200, text="half of an ans"),
        httpx.Response(200, json={}),
    ],
    ids=["refused", "cut", "not JSON", "empty"],
)
async def test_an_incomplete_response_counts_as_lost(answer: httpx.Response) -> None:
    async with sending(load(httpx.MockTransport(lambda _request: answer))) as found:
        while not found.lost:
            await asyncio.sleep(0)
    assert found.completed == []
    assert found.sent == len(found.lost)


async def test_a_broken_connection_counts_as_lost() -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("broken on purpose", request=request)

    async with sending(load(httpx.MockTransport(fail))) as found:
        while not found.lost:
            await asyncio.sleep(0)
    assert "broken on purpose" in found.lost[0]


async def test_the_load_ends_after_the_responses_in_progress() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(request: httpx.Request) -> httpx.Response:
        begun.set()
        await go.wait()
        return whole(request)

    async with sending(load(httpx.MockTransport(slow))) as found:
        await begun.wait()
        asyncio.get_running_loop().call_soon(go.set)
    assert found.sent == len(found.completed) > 0


def test_percentiles_of_no_values_are_none() -> None:
    assert percentile_s([], 0.5) is None
    assert percentile_s([1.0, 2.0, 3.0], 0.5) == 2.0
