"""Engine doubles on real sockets: bytes, streams, disconnecting callers, dying engines."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.router.errors import UpstreamError
from deploy.router.openai import ProxiedRequest
from tests.deploy.router.asgi import bed
from tests.deploy.router.engine import Engine
from tests.deploy.router.sockets import listening, nobody
from tests.deploy.router.tables import table
from tests.deploy.router.waiting import until

aiohttp = pytest.importorskip("aiohttp", reason="the extra `ray` brings aiohttp")

from deploy.router.process import HttpUpstream  # noqa: E402

pytestmark = pytest.mark.anyio

BODY = b'{"messages": [{"content": "hi"}],   "max_tokens": 4}'
STREAM = (
    b'{"messages": [{"content": "hi"}], "max_tokens": 4, "stream": true, "stream_options": {"include_usage": true}}'
)


def request(body: bytes = BODY, **headers: str) -> ProxiedRequest:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return ProxiedRequest(method="POST", target="/v1/chat/completions", headers=named, body=body)


def upstream(*urls: str, silence_s: float = 10.0) -> HttpUpstream:
    return HttpUpstream("a", urls, silence_s=silence_s)


async def whole(found: Any) -> bytes:
    try:
        return b"".join([chunk async for chunk in found.chunks()])
    finally:
        found.close()


async def test_bodies_and_headers_arrive_as_the_engine_sent_them() -> None:
    engine = Engine("a")
    async with listening(engine) as url:
        client = upstream(url)
        found = await client.send(request())
        body = await whole(found)
        await client.close()
    assert engine.bodies == [BODY]
    assert found.head.status == 200
    assert dict(found.head.headers)[b"content-type"] == b"application/json"
    assert json.loads(body)["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize(
    "target", ["@evil.test/v1", "//evil.test/v1", "/\\@evil.test", "/?@evil.test/", ":81/v1", ".evil.test/"]
)
async def test_no_request_target_changes_the_called_host(target: str) -> None:
    engine = Engine("a")
    async with listening(engine) as url:
        client = upstream(url)
        found = await client.send(replace(request(), target=target))
        assert found.head.status == 200
        await whole(found)
        await client.close()
    assert engine.bodies == [BODY]


async def test_targets_are_appended_to_the_address_of_the_engine() -> None:
    requested: list[bytes] = []

    async def noting(scope: Any, _receive: Any, send: Any) -> None:
        requested.append(scope["raw_path"] + b"?" + scope["query_string"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with listening(noting) as url:
        client = upstream(f"{url}/below/")
        await whole(await client.send(replace(request(), target="/v1/m%C3%A4?a=%20b")))
        await client.close()
    assert requested == [b"/below/v1/m%C3%A4?a=%20b"]


async def test_a_stream_through_the_router_equals_that_of_the_engine() -> None:
    engine = Engine("a")
    async with listening(engine) as url, aiohttp.ClientSession() as http:
        async with http.post(f"{url}/v1/chat/completions", data=STREAM) as direct:
            expected = await direct.read()
        router = bed(table(weights={"a": 1.0}), {"a": upstream(url)}).router
        async with listening(router) as front, http.post(f"{front}/v1/chat/completions", data=STREAM) as routed:
            assert await routed.read() == expected
            assert routed.headers["content-type"] == "text/event-stream"
        await router.stop()
    assert engine.bodies == [STREAM] * 2


async def test_tokens_are_streamed_one_by_one(tmp_path: Path) -> None:
    engine, gate = Engine("a"), tmp_path / "gate"
    async with listening(engine) as url:
        router = bed(table(weights={"a": 1.0}), {"a": upstream(url)}).router
        async with (
            listening(router) as front,
            aiohttp.ClientSession() as http,
            http.post(f"{front}/v1/chat/completions", data=STREAM, headers={"x-until": str(gate)}) as routed,
        ):
            first = await routed.content.readany()
            assert (first.count(b"data:"), engine.in_flight) == (1, 1)
            gate.touch()
            assert (await routed.read()).count(b"data:") == 5
        await router.stop()


async def test_a_disconnect_of_the_caller_reaches_the_engine() -> None:
    engine = Engine("a")
    async with listening(engine) as url:
        found = bed(table(weights={"a": 1.0}), {"a": upstream(url)})
        async with listening(found.router) as front, aiohttp.ClientSession() as http:
            forever = STREAM.replace(b'"max_tokens": 4', b'"max_tokens": 100000')
            async with http.post(f"{front}/v1/chat/completions", data=forever, headers={"x-token-ms": "5"}) as routed:
                await routed.content.readany()
                routed.close()
            await until(lambda: engine.in_flight == 0)
            await until(lambda: found.counted("requests_total", route="a", priority="high", outcome="gone") == 1.0)
        await found.router.stop()


async def test_an_unreachable_replica_is_skipped() -> None:
    engine = Engine("a")
    async with listening(engine) as url:
        client = upstream(nobody(), url)
        with pytest.raises(UpstreamError, match="a did not respond: ClientConnectorError"):
            await client.send(request())
        for _ in range(3):
            await whole(await client.send(request()))
        await client.close()
    assert len(engine.bodies) == 3


async def test_replicas_are_filled_evenly() -> None:
    engines = [Engine("1"), Engine("2")]
    async with listening(engines[0]) as one, listening(engines[1]) as two:
        client = upstream(one, two)
        found = await asyncio.gather(*(client.send(request(STREAM, x_token_ms="1000000")) for _ in range(10)))
        assert Counter(engine.in_flight for engine in engines) == {5: 2}
        for each in found:
            each.close()
        await until(lambda: not any(engine.in_flight for engine in engines))
        await client.close()


async def test_an_engine_that_dies_during_its_response_raises_an_error() -> None:
    async def dying(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    async with listening(dying) as url:
        client = upstream(url)
        found = await client.send(request())
        with pytest.raises(UpstreamError, match="a failed during its response: ClientPayloadError"):
            await whole(found)
        await client.close()


async def test_a_silent_engine_times_out() -> None:
    async with listening(Engine("a")) as url:
        client = upstream(url, silence_s=0.05)
        with pytest.raises(UpstreamError, match="Timeout"):
            await whole(await client.send(request(x_token_ms="1000")))
        await client.close()
