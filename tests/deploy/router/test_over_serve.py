"""Doubles of Serve handles: callers disconnect and replicas are removed at any turn of the event loop."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deploy.router.asgi import JSON, Bed, Exchange, bed
from tests.deploy.router.tables import table, waiting_in

pytest.importorskip("ray.serve", reason="the extra `ray`")

from ray.serve.exceptions import RayServeException

from deploy.router.serve_app import ServeUpstream, present

TURNS = st.integers(0, 14)
DISCONNECT_TURNS = 4  # from the disconnect message to the end of the request
PLAN = st.lists(st.one_of(st.integers(0, 3), st.just("fails")), min_size=1, max_size=4)


@dataclass
class Stream:
    """One call in a replica: each item arrives after a number of turns, or the call fails."""

    plan: Sequence[int | str]
    cancelled: bool = False
    over: bool = False
    _at: int = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._at == len(self.plan):
            self.over = True
            raise StopAsyncIteration
        step = self.plan[self._at]
        if step == "fails":
            self.over = True
            raise RayServeException("the replica died")
        for _ in range(int(step)):
            await asyncio.sleep(0)
        self._at += 1
        return (200, [JSON]) if self._at == 1 else b"part"

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Handle:
    """The handle of one deployment."""

    plan: Sequence[int | str]
    disconnected: asyncio.Event  # set once the caller has disconnected
    calls: list[Stream] = field(default_factory=list)
    calls_after_disconnect: int = 0

    def options(self, **_options: Any) -> Self:
        return self

    def remote(self, *_question: Any) -> Stream:
        self.calls_after_disconnect += self.disconnected.is_set()
        self.calls.append(Stream(self.plan))
        return self.calls[-1]


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def send_request(a: Handle, b: Handle, *, gone: int | None, abandoned: int) -> tuple[Bed, Exchange]:
    """Send a request; the caller disconnects and a deployment loses its replicas at the given turns."""
    upstreams = {"a": ServeUpstream("a", a), "b": ServeUpstream("b", b)}
    found = bed(table(weights={"a": 1 - 1e-7, "b": 1e-7}), upstreams)
    left = asyncio.Event()
    request_task = asyncio.create_task(found.post(gone=left))

    async def go(count: int) -> None:
        await turns(count)
        left.set()
        await turns(DISCONNECT_TURNS)
        a.disconnected.set()

    async def abandon() -> None:
        await turns(abandoned)
        upstreams["a"].abandon()

    side_tasks = [asyncio.create_task(abandon())]
    if gone is not None:
        side_tasks.append(asyncio.create_task(go(gone)))
    exchange = await request_task
    await asyncio.gather(*side_tasks)
    await turns(5)
    return found, exchange


@given(plans=st.tuples(PLAN, PLAN), gone=st.one_of(st.none(), TURNS), abandoned=TURNS)
def test_a_disconnect_at_any_turn_releases_the_slot_and_starts_no_call(
    plans: tuple[list[int | str], list[int | str]], gone: int | None, abandoned: int
) -> None:
    async def run_case() -> None:
        disconnected = asyncio.Event()
        a, b = Handle(plans[0], disconnected), Handle(plans[1], disconnected)
        found, exchange = await send_request(a, b, gone=gone, abandoned=abandoned)
        scheduler = found.router.async_scheduler.scheduler
        assert not any(scheduler.in_flight.values())
        assert not any(waiting_in(scheduler).values())
        assert all(call.over or call.cancelled for call in [*a.calls, *b.calls])
        outcomes = ("ok", "gone", "lost", "failed")
        of = {"priority": "high"}
        ended = {
            outcome: sum(found.counted("requests_total", **of, route=r, outcome=outcome) for r in ("a", "b", "none"))
            for outcome in outcomes
        }
        assert sum(ended.values()) == 1.0, ended
        if gone is None:
            assert exchange.status == (502 if ended["failed"] else 200)
            assert exchange.whole == (not ended["lost"])
            assert not ended["gone"]
        assert a.calls_after_disconnect + b.calls_after_disconnect == 0

    asyncio.run(run_case())


async def cancel_during_abandon() -> tuple[Handle, Handle]:
    a, b = Handle([99], asyncio.Event()), Handle([0, 0], asyncio.Event())
    upstreams = {"a": ServeUpstream("a", a), "b": ServeUpstream("b", b)}
    found = bed(table(weights={"a": 1 - 1e-7, "b": 1e-7}), upstreams)
    request_task = asyncio.create_task(found.post())
    await turns(5)
    upstreams["a"].abandon()
    request_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request_task
    assert not any(found.router.async_scheduler.scheduler.in_flight.values())
    return a, b


def test_a_cancelled_request_is_not_retried_when_its_replica_is_removed() -> None:
    a, b = asyncio.run(cancel_during_abandon())
    assert (len(a.calls), len(b.calls)) == (1, 0)
    assert a.calls[0].cancelled


def test_a_replica_that_updates_its_config_counts_as_present() -> None:
    """Otherwise the router would refuse requests while the only replica of a deployment updates its config."""
    assert present({"UPDATING": 1}) == present({"RECOVERING": 1}) == 1
    assert present({"RUNNING": 2, "UPDATING": 1, "PENDING_MIGRATION": 1, "STARTING": 5, "STOPPING": 3}) == 4
    assert present({}) == 0
