"""Handles as Serve's behave: callers that go, and replicas that are taken away, at any turn of the event loop."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deploy.router.asgi import JSON, Bed, Told, bed
from tests.deploy.router.tables import table, waiting_in

pytest.importorskip("ray.serve", reason="the extra `ray`")

from ray.serve.exceptions import RayServeException

from deploy.router.serve_app import ServeUpstream, present

TURNS = st.integers(0, 14)
TURNS_TO_HEAR = 4  # from what the server tells to the end of the request
PLAN = st.lists(st.one_of(st.integers(0, 3), st.just("fails")), min_size=1, max_size=4)


@dataclass
class Stream:
    """One call in a replica: each item comes so many turns after it was asked for, or the call fails."""

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
    """Of one deployment."""

    plan: Sequence[int | str]
    heard: asyncio.Event  # that the caller has hung up
    calls: list[Stream] = field(default_factory=list)
    for_nobody: int = 0

    def options(self, **_options: Any) -> Self:
        return self

    def remote(self, *_question: Any) -> Stream:
        self.for_nobody += self.heard.is_set()
        self.calls.append(Stream(self.plan))
        return self.calls[-1]


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def asked(a: Handle, b: Handle, *, gone: int | None, abandoned: int) -> tuple[Bed, Told]:
    """A request, during which the caller goes and a deployment loses its replicas, each at its turn."""
    upstreams = {"a": ServeUpstream("a", a), "b": ServeUpstream("b", b)}
    found = bed(table(weights={"a": 1 - 1e-7, "b": 1e-7}), upstreams)
    left = asyncio.Event()
    asking = asyncio.create_task(found.post(gone=left))

    async def go(count: int) -> None:
        await turns(count)
        left.set()
        await turns(TURNS_TO_HEAR)
        a.heard.set()

    async def abandon() -> None:
        await turns(abandoned)
        upstreams["a"].abandon()

    beside = [asyncio.create_task(abandon())]
    if gone is not None:
        beside.append(asyncio.create_task(go(gone)))
    told = await asking
    await asyncio.gather(*beside)
    await turns(5)
    return found, told


@given(plans=st.tuples(PLAN, PLAN), gone=st.one_of(st.none(), TURNS), abandoned=TURNS)
def test_whenever_a_caller_goes_its_place_comes_back_and_nobody_is_served_for_it(
    plans: tuple[list[int | str], list[int | str]], gone: int | None, abandoned: int
) -> None:
    async def play() -> None:
        heard = asyncio.Event()
        a, b = Handle(plans[0], heard), Handle(plans[1], heard)
        found, told = await asked(a, b, gone=gone, abandoned=abandoned)
        scheduler = found.router.front.scheduler
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
            assert told.status == (502 if ended["failed"] else 200)
            assert told.whole == (not ended["lost"])
            assert not ended["gone"]
        assert a.for_nobody + b.for_nobody == 0

    asyncio.run(play())


async def gone_as_it_is_abandoned() -> tuple[Handle, Handle]:
    a, b = Handle([99], asyncio.Event()), Handle([0, 0], asyncio.Event())
    upstreams = {"a": ServeUpstream("a", a), "b": ServeUpstream("b", b)}
    found = bed(table(weights={"a": 1 - 1e-7, "b": 1e-7}), upstreams)
    asking = asyncio.create_task(found.post())
    await turns(5)
    upstreams["a"].abandon()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not any(found.router.front.scheduler.in_flight.values())
    return a, b


def test_a_caller_that_goes_as_its_replica_is_taken_away_is_not_served_elsewhere() -> None:
    a, b = asyncio.run(gone_as_it_is_abandoned())
    assert (len(a.calls), len(b.calls)) == (1, 0)
    assert a.calls[0].cancelled


def test_a_replica_that_takes_in_another_config_is_still_there() -> None:
    """Were it counted as none, the only replica of a deployment would have its requests refused for that moment."""
    assert present({"UPDATING": 1}) == present({"RECOVERING": 1}) == 1
    assert present({"RUNNING": 2, "UPDATING": 1, "PENDING_MIGRATION": 1, "STARTING": 5, "STOPPING": 3}) == 4
    assert present({}) == 0
