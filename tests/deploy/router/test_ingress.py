"""The ingress: bodies pass unchanged, errors reach the caller, and every slot is released."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.common.errors import PlanUnusableError
from deploy.router.table import CellWeights, Route, RoutingTable
from power.controls import Priority
from tests.deploy.router.asgi import CHAT, EVENTS, JSON, Bed, Exchange, Scripted, bed, lost
from tests.deploy.router.tables import table, waiting_in
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio

ONE = {"a": 1.0}
LOW = [(b"x-fleetwright-priority", b"low")]
T = TypeVar("T")


def alone(deployment: Scripted, *, slots: int = 100, **settings: Any) -> Bed:
    """A router before one deployment."""
    return bed(table(weights=ONE, slots={"a": slots}), {"a": deployment}, **settings)


def pair(a: Scripted, b: Scripted) -> Bed:
    """A router before two deployments; the first gets nearly all weight."""
    return bed(table(weights={"a": 1 - 1e-7, "b": 1e-7}), {"a": a, "b": b})


def is_idle(found: Bed) -> bool:
    scheduler = found.router.async_scheduler.scheduler
    return not any(scheduler.in_flight.values()) and not any(waiting_in(scheduler).values())


async def settle() -> None:
    """Let all pending tasks run."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def held(found: Bed, count: int, **more: Any) -> AsyncIterator[list["asyncio.Task[Exchange]"]]:
    """Send requests and keep them in progress during the block."""
    tasks = [asyncio.create_task(found.post(**more)) for _ in range(count)]
    await settle()
    yield tasks
    await asyncio.gather(*tasks)


def error_of(exchange: Exchange) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(exchange.body)["error"]
    return error


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run in a new event loop, for property tests."""
    return asyncio.run(work)


CUTS = st.lists(st.integers(0, 300), max_size=6)


@given(content=st.text(max_size=60), cuts=CUTS)
def test_a_request_body_arrives_unchanged_for_any_split(content: str, cuts: list[int]) -> None:
    body = b'{"x" :1.50,  "messages":[{"content":' + json.dumps(content).encode() + b"}]}\n"
    deployment = Scripted()
    exchange = run(alone(deployment).post(body, cuts=cuts))
    assert (exchange.status, deployment.requests[0].body) == (200, body)


@given(parts=st.lists(st.binary(min_size=1, max_size=40), max_size=12), streamed=st.booleans())
def test_a_response_arrives_unchanged_in_the_same_chunks(parts: list[bytes], *, streamed: bool) -> None:
    deployment = Scripted(parts=parts, headers=(EVENTS if streamed else JSON,))
    exchange = run(alone(deployment).post())
    assert (exchange.chunks, exchange.whole) == (parts, True)


async def test_headers_pass_except_hop_by_hop_headers() -> None:
    deployment = Scripted(
        headers=[
            JSON,
            (b"X-Request-Id", b"7"),
            (b"Connection", b"close, x-hop"),
            (b"X-Hop", b"1"),
            (b"set-cookie", b"a"),
        ]
    )
    exchange = await alone(deployment).post(
        path="/v1/chat/completions?a=%20b",
        headers=[
            (b"authorization", b"Bearer k"),
            (b"te", b"trailers"),
            (b"connection", b"x-mine"),
            (b"x-mine", b"1"),
            (b"content-length", b"%d" % len(CHAT)),
            (b"accept-encoding", b"gzip"),
        ],
    )
    (request,) = deployment.requests
    assert [name for name, _ in request.headers] == [b"authorization", b"content-length", b"accept-encoding"]
    assert request.target == "/v1/chat/completions?a=%20b"
    assert exchange.headers == {
        b"content-type": b"application/json",
        b"x-request-id": b"7",
        b"set-cookie": b"a",
        b"x-fleetwright-route": b"a",
        b"x-fleetwright-plan": b"p1",
    }


async def test_requests_other_than_chats_pass() -> None:
    deployment = Scripted(parts=[b"[1]"], status=404)
    exchange = await alone(deployment).post(b"", path="/v1/models", method="GET")
    assert (exchange.status, exchange.body, deployment.requests[0].method) == (404, b"[1]", "GET")


async def test_engine_errors_pass_unchanged() -> None:
    deployment = Scripted(parts=[b'{"error": 1}'], status=500)
    exchange = await alone(deployment).post()
    assert (exchange.status, exchange.body, len(deployment.requests)) == (500, b'{"error": 1}', 1)


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), (b"x" * 101, 413)])
async def test_invalid_and_oversized_requests_are_refused_before_any_upstream_call(body: bytes, status: int) -> None:
    deployment = Scripted()
    found = alone(deployment, max_body_bytes=100)
    exchange = await found.post(body, cuts=[50])
    assert (exchange.status, deployment.requests) == (status, [])
    assert error_of(exchange)["type"] == "invalid_request_error"
    announced = await found.post(body, headers=[(b"content-length", b"%d" % len(body))])
    assert announced.status == status


async def test_usage_updates_the_size_estimate_and_streams_are_timed() -> None:
    events = [b'data: {"choices": [{}]}\n\n'] * 3
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 3}}\n\n'
    found = alone(Scripted(parts=[*events, usage, b"data: [DONE]\n\n"], headers=[EVENTS]))
    await found.post()
    assert found.router.async_scheduler.scheduler._tokens.ratio == 0.5, "one token of two bytes"
    of = {"bucket": "100x50", "route": "a", "priority": "high"}
    counts = dict.fromkeys(("ttft", "tpot", "admission_wait"), 0.0)
    for bucket in ("100x50", "100x500"):
        for name in counts:
            counts[name] += found.counted(f"{name}_seconds_count", **of | {"bucket": bucket})
    assert counts == {"ttft": 1.0, "tpot": 1.0, "admission_wait": 1.0}
    assert found.counted("requests_total", route="a", priority="high", outcome="ok") == 1.0
    assert found.counted("overhead_seconds_count") == 1.0


async def test_a_route_that_fails_before_its_first_byte_is_retried_on_another() -> None:
    for a in (Scripted(failures=[lost()]), Scripted(parts=[lost()])):
        b = Scripted(parts=[b"b"])
        found = pair(a, b)
        exchange = await found.post()
        assert (exchange.body, exchange.headers[b"x-fleetwright-route"]) == (b"b", b"b")
        assert [answer.closed for answer in a.answers] == [1] * len(a.answers)
        assert found.counted("retries_total", route="a") == 1.0
        assert is_idle(found)


async def test_a_retry_uses_the_current_table_even_with_different_buckets() -> None:
    failing = asyncio.Event()
    a, b = Scripted(parts=[failing, lost()]), Scripted(parts=[b"b"])
    found = pair(a, b)
    prompt = b'{"prompt": "' + b"x" * 4000 + b'"}'
    async with held(found, 1, body=prompt, path="/v1/completions") as (task,):
        assert len(a.requests) == 1, "the longest prompts have their own row"
        routes, cells = {"b": Route(replicas=1, max_in_flight=1)}, (CellWeights(row=0, column=0, weights={"b": 1.0}),)
        one_row = RoutingTable(
            version="p2", input_tokens=(10,), output_tokens=(10,), share=((1.0,),), routes=routes, cells=cells
        )
        await found.router.take(one_row)
        failing.set()
    assert (task.result().body, task.result().headers[b"x-fleetwright-plan"]) == (b"b", b"p2")
    assert is_idle(found)


async def test_a_retry_waits_for_a_slot_of_the_new_table_when_its_route_is_removed() -> None:
    failing, answering = asyncio.Event(), asyncio.Event()
    found = pair(Scripted(parts=[failing, lost()]), Scripted(parts=[answering, b"b"]))
    async with held(found, 1) as (removed,):
        await found.router.take(table(version="p2", slots={"b": 1}, weights={"b": 1.0}))
        async with held(found, 1) as (busy,):
            failing.set()
            await settle()
            assert not removed.done(), "the only slot is taken"
            answering.set()
    assert [(each.result().status, each.result().body) for each in (removed, busy)] == [(200, b"b")] * 2
    assert is_idle(found)


async def test_the_overhead_of_the_router_is_observed_once_per_request() -> None:
    a, b = Scripted(failures=[lost()]), Scripted()
    found = pair(a, b)
    await found.post()
    assert found.counted("overhead_seconds_count") == 1.0


async def test_a_request_is_retried_at_most_once() -> None:
    a, b = Scripted(failures=[lost()] * 9), Scripted(failures=[lost()] * 9)
    found = pair(a, b)
    exchange = await found.post()
    assert (exchange.status, error_of(exchange)["type"]) == (502, "server_error")
    assert len(a.requests) + len(b.requests) == 2
    assert is_idle(found)


async def test_the_only_route_is_retried_itself() -> None:
    deployment = Scripted(failures=[lost()])
    assert (await alone(deployment).post()).status == 200
    assert len(deployment.requests) == 2


async def test_a_route_that_fails_repeatedly_is_closed_for_a_while() -> None:
    a, b = Scripted(failures=[lost()] * 99), Scripted()
    found = pair(a, b)
    for _ in range(10):
        assert (await found.post()).status == 200
    assert len(a.requests) == 3


async def test_no_route_is_closed_if_all_routes_fail() -> None:
    deployment = Scripted(failures=[lost()] * 8)
    found = alone(deployment)
    assert [(await found.post()).status for _ in range(6)] == [502] * 4 + [200] * 2


async def test_an_interrupted_response_stays_incomplete() -> None:
    found = alone(Scripted(parts=[b"data: 1\n\n", b"data: {", lost()], headers=[EVENTS]))
    exchange = await found.post()
    assert not exchange.whole
    *before, last = exchange.chunks
    assert before == [b"data: 1\n\n", b"data: {"]
    assert json.loads(last.strip().removeprefix(b"data: "))["error"]["type"] == "server_error"
    assert found.counted("requests_total", route="a", priority="high", outcome="lost") == 1.0
    assert is_idle(found)

    plain = await alone(Scripted(parts=[b'{"a', lost()])).post()
    assert (plain.whole, plain.body) == (False, b'{"a'), "nothing is appended to an incomplete document"


async def test_a_disconnect_of_the_caller_ends_the_upstream_request() -> None:
    never, gone = asyncio.Event(), asyncio.Event()
    deployment = Scripted(parts=[b"data: 1\n\n", never], headers=[EVENTS])
    found = alone(deployment)
    async with held(found, 1, gone=gone) as (task,):
        assert deployment.answers[0].closed == 0
        gone.set()
    assert deployment.answers[0].closed == 1
    assert not task.result().whole
    assert found.counted("requests_total", route="a", priority="high", outcome="gone") == 1.0
    assert is_idle(found)


async def test_a_caller_that_disconnects_in_the_queue_is_removed() -> None:
    first, gone = asyncio.Event(), asyncio.Event()
    deployment = Scripted(parts=[first])
    found = alone(deployment, slots=1)
    async with held(found, 1):
        async with held(found, 1, gone=gone):
            assert waiting_in(found.router.async_scheduler.scheduler)[Priority.HIGH] == 1
            gone.set()
        assert is_waiting_for(found, 0)
        assert found.counted("requests_total", route="none", priority="high", outcome="gone") == 1.0
        first.set()
    assert len(deployment.requests) == 1
    assert is_idle(found)


async def test_a_cancelled_request_releases_its_slot() -> None:
    found = alone(Scripted(parts=[asyncio.Event()]))
    task = asyncio.create_task(found.post())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert is_idle(found)


async def test_queued_requests_run_in_order_of_priority() -> None:
    gates = [asyncio.Event() for _ in range(6)]
    order: list[str] = []
    deployment = Scripted()
    found = alone(deployment, slots=1)

    async def one(at: int, name: str) -> None:
        deployment.parts = [gates[at]]
        await found.post(headers=LOW if name == "low" else [])
        order.append(name)

    tasks = []
    for at, name in enumerate(["high", "low", "low", "high", "high", "low"]):
        tasks.append(asyncio.create_task(one(at, name)))
        await settle()
    for gate in gates:
        gate.set()
    await asyncio.gather(*tasks)
    assert order == ["high", "high", "high", "low", "low", "low"]


async def test_a_full_queue_and_a_queue_timeout_return_429() -> None:
    gate, now_s = asyncio.Event(), 100.0
    found = alone(Scripted(parts=[gate]), slots=1, max_waiting=1, patience_s=5.0, clock=lambda: now_s)
    async with held(found, 1):
        async with held(found, 1) as (waiting,):
            refused = await found.post()
            now_s += 5.0
            found.router.tick()
        gate.set()
    for exchange in (refused, waiting.result()):
        assert exchange.status == 429
        assert int(exchange.headers[b"retry-after"]) >= 1
        assert error_of(exchange)["type"] == "rate_limit_error"
    assert found.counted("requests_total", route="none", priority="high", outcome="busy") == 2.0


async def test_no_replicas_return_503() -> None:
    exchange = await alone(Scripted(), slots=0).post()
    assert (exchange.status, error_of(exchange)["type"]) == (503, "server_error")


async def test_weights_change_under_load_without_lost_requests() -> None:
    gate = asyncio.Event()
    a, b = Scripted(parts=[gate, b"done"]), Scripted(parts=[b"done"])
    found = bed(table(weights={"a": 0.5, "b": 0.5}), {"a": a, "b": b})
    async with held(found, 40) as before:
        await found.router.take(table(version="p2", weights={"b": 1.0}))
        after = await asyncio.gather(*(found.post() for _ in range(40)))
        gate.set()
    answers = [task.result() for task in before] + after
    assert {exchange.body for exchange in answers} == {b"done"}
    assert {exchange.headers[b"x-fleetwright-plan"] for exchange in after} == {b"p2"}
    assert {task.result().headers[b"x-fleetwright-plan"] for task in before} == {b"p1"}, (
        "the plan that chose their routes"
    )
    assert (len(a.requests), len(b.requests)) == (20, 60)
    assert is_idle(found)


async def test_a_table_with_unknown_routes_is_refused_and_the_old_one_stays() -> None:
    found = alone(Scripted())
    with pytest.raises(PlanUnusableError, match=r"sends to b, c; allowed: a"):
        await found.router.take(table(version="p2", weights={"b": 0.5, "c": 0.5}))
    assert found.router.async_scheduler.scheduler.table.version == "p1"
    assert found.counted("table_loads_total", result="refused") == 1.0


async def test_stop_waits_for_requests_in_flight_and_refuses_new_ones() -> None:
    gate = asyncio.Event()
    deployment = Scripted(parts=[gate, b"done"])
    found = alone(deployment, slots=1)
    await found.router.start()
    async with held(found, 2) as tasks:
        ending = asyncio.create_task(found.router.stop())
        await settle()
        assert (await found.post()).status == 503
        assert not ending.done()
        gate.set()
    await ending
    assert [task.result().body for task in tasks] == [b"done"] * 2, "one of the requests was still in the queue"
    assert deployment.closed


async def test_a_second_stop_waits_for_the_same_end() -> None:
    gate = asyncio.Event()
    found = alone(Scripted(parts=[gate]))
    async with held(found, 1):
        endings = [asyncio.create_task(found.router.stop()) for _ in range(2)]
        await settle()
        gate.set()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*endings)


async def test_the_asgi_lifespan_starts_and_stops_the_router() -> None:
    found, sent = alone(Scripted()), list[str]()
    coming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> dict[str, Any]:
        return coming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await found.router({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    await found.router({"type": "websocket"}, receive, send)
    assert sent[-1] == "websocket.close"


def is_waiting_for(found: Bed, count: int) -> bool:
    return sum(waiting_in(found.router.async_scheduler.scheduler).values()) == count
