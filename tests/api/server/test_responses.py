"""What every response goes through: compression, parts of large bodies, and the end of the service."""

import asyncio
import gzip
import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from api.schemas.tokens import TokenScope
from api.server.access_audit import AccessAudit
from api.server.front import FrontLimits, front_config
from api.server.metrics import ServiceMetrics
from api.server.middleware import CHUNK_BYTES, WHOLE_BYTES, ChunkedBodies, RequestObserver
from api.server.settings import AuditLevel
from api.server.shared_page import SharedPage
from api.store import Store
from tests.testbed.service import RunningService, SteppedClock

pytestmark = pytest.mark.anyio

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/x", "headers": []}


async def test_json_is_compressed_for_clients_that_accept_it(sqlite_service: RunningService) -> None:
    async with sqlite_service.client(TokenScope.READ) as reader:
        plain = await reader.get("/v1/gpus", headers={"Accept-Encoding": "identity"})
        packed = await reader.get("/v1/gpus", headers={"Accept-Encoding": "gzip"})
        small = await reader.get("/v1/freeze", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert int(packed.headers["content-length"]) < len(plain.content) / 3
    assert packed.json() == plain.json()
    assert "content-encoding" not in small.headers


@pytest.mark.parametrize("path", ["/openapi.json", "/docs/swagger-ui-bundle.js"])
async def test_pages_for_everybody_are_compressed_once(sqlite_service: RunningService, path: str) -> None:
    async with sqlite_service.client(None) as client:
        plain = await client.get(path, headers={"Accept-Encoding": "identity"})
        packed = await client.get(path, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    assert len(gzip.compress(plain.content)) == pytest.approx(int(packed.headers["content-length"]), rel=0.01)


@pytest.mark.parametrize("length", [0, WHOLE_BYTES, WHOLE_BYTES + 1, 5 * CHUNK_BYTES])
async def test_large_bodies_are_sent_in_parts(length: int) -> None:
    body = bytes(range(256)) * (length // 256) + b"x" * (length % 256)
    sent: list[Message] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": body})

    async def send(message: Message) -> None:
        sent.append(message)

    await ChunkedBodies(app)(SCOPE, _nothing, send)
    parts = sent[1:]
    assert b"".join(part["body"] for part in parts) == body
    assert [part.get("more_body", False) for part in parts] == [True] * (len(parts) - 1) + [False]
    assert max(len(part["body"]) for part in parts) <= (WHOLE_BYTES if length <= WHOLE_BYTES else CHUNK_BYTES)


async def _nothing() -> Message:
    return {"type": "http.request"}


class TestShutdown:
    """The server cancels what its grace period did not end."""

    async def cancelled(self, *, stopping: bool) -> list[Message]:
        event, begun, sent = asyncio.Event(), asyncio.Event(), []

        async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
            begun.set()
            await asyncio.sleep(3600)

        async def send(message: Message) -> None:
            sent.append(message)

        now = SteppedClock().now
        store = Store("sqlite+aiosqlite:///unused.db")
        audit = AccessAudit(store=store, level=AuditLevel.WRITES, now=now)
        observer = RequestObserver(app, metrics=ServiceMetrics(), access_audit=audit, now=now, stopping=event)
        request = asyncio.ensure_future(observer(SCOPE, _nothing, send))
        await begun.wait()
        if stopping:
            event.set()
        request.cancel()
        (outcome,) = await asyncio.gather(request, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError) is not stopping
        return sent

    async def test_a_request_in_flight_gets_a_problem(self) -> None:
        start, body = await self.cancelled(stopping=True)
        assert start["status"] == 503
        assert dict(start["headers"])[b"retry-after"] == b"1"
        assert json.loads(body["body"])["type"] == "urn:fleetwright:problem:shutting-down"

    async def test_other_cancellations_stay(self) -> None:
        assert await self.cancelled(stopping=False) == []


class TestSharedPage:
    """`/metrics`, which anyone may read."""

    async def test_readers_share_one_rendering_and_its_page(self) -> None:
        clock, rendered = SteppedClock(), 0

        async def render() -> bytes:
            nonlocal rendered
            await asyncio.sleep(0.01)
            rendered += 1
            return b"%d" % rendered

        page: SharedPage[bytes] = SharedPage(interval_s=1.0, monotonic_s=clock.monotonic_s)
        assert await asyncio.gather(*(page.get(render) for _each in range(50))) == [b"1"] * 50
        clock.advance(0.9)
        assert await page.get(render) == b"1"
        clock.advance(0.2)
        assert await page.get(render) == b"2"

    async def test_a_failure_is_not_kept(self) -> None:
        page: SharedPage[bytes] = SharedPage(interval_s=1.0, monotonic_s=SteppedClock().monotonic_s)

        async def fail() -> bytes:
            raise RuntimeError("no page")

        async def render() -> bytes:
            return b"page"

        with pytest.raises(RuntimeError, match="no page"):
            await page.get(fail)
        assert await page.get(render) == b"page"

    async def test_a_reader_that_leaves_does_not_end_the_rendering_of_others(self) -> None:
        page: SharedPage[bytes] = SharedPage(interval_s=1.0, monotonic_s=SteppedClock().monotonic_s)

        async def render() -> bytes:
            await asyncio.sleep(0.05)
            return b"page"

        first, second = (asyncio.ensure_future(page.get(render)) for _each in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == b"page"
        await page.close()


async def test_the_front_keeps_uvicorns_other_options() -> None:
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    given: dict[str, Any] = {"timeout_graceful_shutdown": 7, "server_header": False}
    config = front_config(_nothing, limits=FrontLimits(), observe_refusal=list[str]().append, **given)
    loop.set_exception_handler(handler)
    assert (config.timeout_graceful_shutdown, config.server_header, config.timeout_keep_alive) == (7, False, 75)
