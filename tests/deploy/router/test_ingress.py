"""Bodies pass untouched both ways; whatever goes wrong, callers are told the truth and no place is lost."""

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
from tests.deploy.router.asgi import CHAT, EVENTS, JSON, Bed, Scripted, Told, bed, lost
from tests.deploy.router.tables import table, waiting_in
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio

ONE = {"a": 1.0}
LOW = [(b"x-fleetwright-priority", b"low")]
T = TypeVar("T")


def alone(deployment: Scripted, *, slots: int = 100, **settings: Any) -> Bed:
    """A router before one deployment."""
    return bed(table(weights=ONE, rooms={"a": slots}), {"a": deployment}, **settings)


def pair(a: Scripted, b: Scripted) -> Bed:
    """Before two, of which the first is always due."""
    return bed(table(weights={"a": 1 - 1e-7, "b": 1e-7}), {"a": a, "b": b})


def is_idle(found: Bed) -> bool:
    scheduler = found.router.front.scheduler
    return not any(scheduler.in_flight.values()) and not any(waiting_in(scheduler).values())


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def held(found: Bed, count: int, **more: Any) -> AsyncIterator[list["asyncio.Task[Told]"]]:
    """Requests that were sent, and wait for what their deployment does."""
    tasks = [asyncio.create_task(found.post(**more)) for _ in range(count)]
    await settle()
    yield tasks
    await asyncio.gather(*tasks)


def error_of(told: Told) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(told.body)["error"]
    return error


def run(work: Coroutine[Any, Any, T]) -> T:
    """For properties, which run many loops."""
    return asyncio.run(work)


CUTS = st.lists(st.integers(0, 300), max_size=6)


@given(content=st.text(max_size=60), cuts=CUTS)
def test_a_request_arrives_byte_for_byte_however_it_is_cut(content: str, cuts: list[int]) -> None:
    body = b'{"x" :1.50,  "messages":[{"content":' + json.dumps(content).encode() + b"}]}\n"
    deployment = Scripted()
    told = run(alone(deployment).post(body, cuts=cuts))
    assert (told.status, deployment.asked[0].body) == (200, body)


@given(parts=st.lists(st.binary(min_size=1, max_size=40), max_size=12), streamed=st.booleans())
def test_an_answer_arrives_byte_for_byte_in_the_same_parts(parts: list[bytes], *, streamed: bool) -> None:
    deployment = Scripted(parts=parts, headers=(EVENTS if streamed else JSON,))
    told = run(alone(deployment).post())
    assert (told.chunks, told.whole) == (parts, True)


async def test_headers_pass_but_for_those_of_one_connection() -> None:
    deployment = Scripted(
        headers=[
            JSON,
            (b"X-Request-Id", b"7"),
            (b"Connection", b"close, x-hop"),
            (b"X-Hop", b"1"),
            (b"set-cookie", b"a"),
        ]
    )
    told = await alone(deployment).post(
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
    (asked,) = deployment.asked
    assert [name for name, _ in asked.headers] == [b"authorization", b"content-length", b"accept-encoding"]
    assert asked.target == "/v1/chat/completions?a=%20b"
    assert told.headers == {
        b"content-type": b"application/json",
        b"x-request-id": b"7",
        b"set-cookie": b"a",
        b"x-fleetwright-route": b"a",
        b"x-fleetwright-plan": b"p1",
    }


async def test_what_is_no_chat_passes_too() -> None:
    deployment = Scripted(parts=[b"[1]"], status=404)
    told = await alone(deployment).post(b"", path="/v1/models", method="GET")
    assert (told.status, told.body, deployment.asked[0].method) == (404, b"[1]", "GET")


async def test_errors_of_the_engine_pass_as_they_are() -> None:
    deployment = Scripted(parts=[b'{"error": 1}'], status=500)
    told = await alone(deployment).post()
    assert (told.status, told.body, len(deployment.asked)) == (500, b'{"error": 1}', 1)


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), (b"x" * 101, 413)])
async def test_what_cannot_be_taken_is_refused_before_anybody_is_asked(body: bytes, status: int) -> None:
    deployment = Scripted()
    found = alone(deployment, most_body_bytes=100)
    told = await found.post(body, cuts=[50])
    assert (told.status, deployment.asked) == (status, [])
    assert error_of(told)["type"] == "invalid_request_error"
    announced = await found.post(body, headers=[(b"content-length", b"%d" % len(body))])
    assert announced.status == status


async def test_usage_teaches_the_desk_and_streams_are_timed() -> None:
    events = [b'data: {"choices": [{}]}\n\n'] * 3
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 3}}\n\n'
    found = alone(Scripted(parts=[*events, usage, b"data: [DONE]\n\n"], headers=[EVENTS]))
    await found.post()
    assert found.router.front.scheduler._tokens.ratio == 0.5, "one token of two bytes"
    of = {"bucket": "100x50", "route": "a", "priority": "high"}
    counts = dict.fromkeys(("ttft", "tpot", "admission_wait"), 0.0)
    for bucket in ("100x50", "100x500"):
        for name in counts:
            counts[name] += found.counted(f"{name}_seconds_count", **of | {"bucket": bucket})
    assert counts == {"ttft": 1.0, "tpot": 1.0, "admission_wait": 1.0}
    assert found.counted("requests_total", route="a", priority="high", outcome="ok") == 1.0
    assert found.counted("overhead_seconds_count") == 1.0


async def test_a_route_that_fails_before_its_first_byte_is_replaced_once() -> None:
    for a in (Scripted(failures=[lost()]), Scripted(parts=[lost()])):
        b = Scripted(parts=[b"b"])
        found = pair(a, b)
        told = await found.post()
        assert (told.body, told.headers[b"x-fleetwright-route"]) == (b"b", b"b")
        assert [answer.closed for answer in a.answers] == [1] * len(a.answers)
        assert found.counted("retries_total", route="a") == 1.0
        assert is_idle(found)


async def test_a_second_try_is_by_the_table_in_force_then_whatever_its_buckets() -> None:
    failing = asyncio.Event()
    a, b = Scripted(parts=[failing, lost()]), Scripted(parts=[b"b"])
    found = pair(a, b)
    prompt = b'{"prompt": "' + b"x" * 4000 + b'"}'
    async with held(found, 1, body=prompt, path="/v1/completions") as (task,):
        assert len(a.asked) == 1, "the longest prompts have a row of their own"
        one_row = CellWeights(row=0, column=0, weights={"b": 1.0})
        routes = {"b": Route(replicas=1, most_in_flight=1)}
        found.router.take(
            RoutingTable(
                version="p2", input_tokens=(10,), output_tokens=(10,), share=((1.0,),), routes=routes, cells=(one_row,)
            )
        )
        failing.set()
    assert (task.result().body, task.result().headers[b"x-fleetwright-plan"]) == (b"b", b"p2")
    assert is_idle(found)


async def test_what_the_router_takes_is_counted_before_it_asks_and_once() -> None:
    a, b = Scripted(failures=[lost()]), Scripted()
    found = pair(a, b)
    await found.post()
    assert found.counted("overhead_seconds_count") == 1.0


async def test_it_is_not_tried_a_third_time() -> None:
    a, b = Scripted(failures=[lost()] * 9), Scripted(failures=[lost()] * 9)
    found = pair(a, b)
    told = await found.post()
    assert (told.status, error_of(told)["type"]) == (502, "server_error")
    assert len(a.asked) + len(b.asked) == 2
    assert is_idle(found)


async def test_the_only_route_is_asked_again_itself() -> None:
    deployment = Scripted(failures=[lost()])
    assert (await alone(deployment).post()).status == 200
    assert len(deployment.asked) == 2


async def test_a_route_that_fails_time_after_time_is_left_alone_for_a_while() -> None:
    a, b = Scripted(failures=[lost()] * 99), Scripted()
    found = pair(a, b)
    for _ in range(10):
        assert (await found.post()).status == 200
    assert len(a.asked) == 3


async def test_where_all_routes_fail_none_is_left_alone() -> None:
    deployment = Scripted(failures=[lost()] * 8)
    found = alone(deployment)
    assert [(await found.post()).status for _ in range(6)] == [502] * 4 + [200] * 2


async def test_an_answer_that_breaks_off_is_not_made_whole() -> None:
    found = alone(Scripted(parts=[b"data: 1\n\n", b"data: {", lost()], headers=[EVENTS]))
    told = await found.post()
    assert not told.whole
    *before, last = told.chunks
    assert before == [b"data: 1\n\n", b"data: {"]
    assert json.loads(last.strip().removeprefix(b"data: "))["error"]["type"] == "server_error"
    assert found.counted("requests_total", route="a", priority="high", outcome="lost") == 1.0
    assert is_idle(found)

    plain = await alone(Scripted(parts=[b'{"a', lost()])).post()
    assert (plain.whole, plain.body) == (False, b'{"a'), "nothing is put behind half a document"


async def test_a_caller_that_hangs_up_ends_the_request_there() -> None:
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


async def test_a_caller_that_hangs_up_in_the_queue_leaves_it() -> None:
    first, gone = asyncio.Event(), asyncio.Event()
    deployment = Scripted(parts=[first])
    found = alone(deployment, slots=1)
    async with held(found, 1):
        async with held(found, 1, gone=gone):
            assert waiting_in(found.router.front.scheduler)[Priority.HIGH] == 1
            gone.set()
        assert is_waiting_for(found, 0)
        assert found.counted("requests_total", route="none", priority="high", outcome="gone") == 1.0
        first.set()
    assert len(deployment.asked) == 1
    assert is_idle(found)


async def test_a_server_that_cancels_is_obeyed() -> None:
    found = alone(Scripted(parts=[asyncio.Event()]))
    task = asyncio.create_task(found.post())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert is_idle(found)


async def test_overload_waits_in_order_of_priority() -> None:
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


async def test_a_full_queue_and_the_end_of_patience_are_429() -> None:
    gate, now_s = asyncio.Event(), 100.0
    found = alone(Scripted(parts=[gate]), slots=1, most_waiting=1, patience_s=5.0, clock=lambda: now_s)
    async with held(found, 1):
        async with held(found, 1) as (waiting,):
            refused = await found.post()
            now_s += 5.0
            found.router.tick()
        gate.set()
    for told in (refused, waiting.result()):
        assert told.status == 429
        assert int(told.headers[b"retry-after"]) >= 1
        assert error_of(told)["type"] == "rate_limit_error"
    assert found.counted("requests_total", route="none", priority="high", outcome="busy") == 2.0


async def test_no_replicas_is_503() -> None:
    told = await alone(Scripted(), slots=0).post()
    assert (told.status, error_of(told)["type"]) == (503, "server_error")


async def test_weights_change_under_load_and_nothing_is_lost() -> None:
    gate = asyncio.Event()
    a, b = Scripted(parts=[gate, b"done"]), Scripted(parts=[b"done"])
    found = bed(table(weights={"a": 0.5, "b": 0.5}), {"a": a, "b": b})
    async with held(found, 40) as before:
        found.router.take(table(version="p2", weights={"b": 1.0}))
        after = await asyncio.gather(*(found.post() for _ in range(40)))
        gate.set()
    answers = [task.result() for task in before] + after
    assert {told.body for told in answers} == {b"done"}
    assert {told.headers[b"x-fleetwright-plan"] for told in after} == {b"p2"}
    assert {task.result().headers[b"x-fleetwright-plan"] for task in before} == {b"p1"}, "which chose their routes"
    assert (len(a.asked), len(b.asked)) == (20, 60)
    assert is_idle(found)


async def test_a_table_with_strange_routes_is_refused_and_the_old_one_stays() -> None:
    found = alone(Scripted())
    with pytest.raises(PlanUnusableError, match=r"sends to b, c; allowed: a"):
        found.router.take(table(version="p2", weights={"b": 0.5, "c": 0.5}))
    assert found.router.front.scheduler.table.version == "p1"
    assert found.counted("table_loads_total", result="refused") == 1.0


async def test_the_end_waits_for_what_is_in_flight_and_takes_nobody_more() -> None:
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
    assert [task.result().body for task in tasks] == [b"done"] * 2, "one of them was still in the queue"
    assert deployment.closed


async def test_whoever_asks_for_the_end_again_waits_for_it_too() -> None:
    gate = asyncio.Event()
    found = alone(Scripted(parts=[gate]))
    async with held(found, 1):
        endings = [asyncio.create_task(found.router.stop()) for _ in range(2)]
        await settle()
        gate.set()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*endings)


async def test_the_lifespan_of_the_server_starts_and_stops() -> None:
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
    return sum(waiting_in(found.router.front.scheduler).values()) == count
