"""Callers in an event loop: whatever they and their routes do, every place is given back and nobody is forgotten."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from deploy.common.clock import Clock
from deploy.router.async_scheduler import AsyncScheduler
from deploy.router.errors import BusyError, NoReplicasError, RefusalError
from deploy.router.metrics import PrometheusBackend, RouterMetrics
from deploy.router.row_power import NO_LIMIT, PowerAdmission
from deploy.router.scheduler import Arrival, Ticket
from deploy.router.settings import RouterSettings
from power.controls import Priority
from tests.deploy.router.tables import table, waiting_in

pytestmark = pytest.mark.anyio

HIGH, LOW = Arrival(prompt_bytes=400), Arrival(prompt_bytes=400, priority=Priority.LOW)
SHUT = PowerAdmission(row_w=1.0, step_w=1.0, low_limit_w=0.0, high_limit_w=0.0)


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    @property
    def clock(self) -> Clock:
        return replace(Clock(), steady_s=lambda: self.now_s)


def front(hands: Hands, *, a: int = 3, b: int = 2, most_waiting: int = 10) -> AsyncScheduler:
    return AsyncScheduler(
        table(rooms={"a": a, "b": b}),
        settings=RouterSettings(most_waiting=most_waiting, patience_s=4.0),
        metrics=RouterMetrics(PrometheusBackend(CollectorRegistry())),
        clock=hands.clock,
    )


OPS = st.lists(
    st.tuples(
        st.sampled_from(["high", "low", "hang up", "done", "fail", "swap", "replicas", "shut", "open", "wait"]),
        st.integers(0, 30),
    ),
    max_size=60,
)


@given(OPS)
def test_every_place_is_given_back_and_every_caller_hears(ops: list[tuple[str, int]]) -> None:
    asyncio.run(play(ops))


async def play(ops: list[tuple[str, int]]) -> None:
    hands = Hands()
    found = front(hands)
    callers: list[asyncio.Task[Ticket]] = []
    sent: list[Ticket] = []
    told: set[int] = set()
    for what, number in ops:
        if what in {"high", "low"}:
            callers.append(asyncio.create_task(found.start(HIGH if what == "high" else LOW)))
        elif what == "hang up" and callers:
            callers[number % len(callers)].cancel()  # perhaps in the very moment of its start
        elif what == "done" and sent:
            found.done(sent.pop(number % len(sent)), answered=True)
        elif what == "fail" and sent:
            at = number % len(sent)
            sent[at] = found.retry(sent[at])
        elif what == "swap":
            found.swap(table(version=str(number), rooms={"a": number % 5, "b": 2}))
        elif what == "replicas":
            found.set_replicas({"a": number % 4}, routers=1 + number % 2)
        elif what in {"shut", "open"}:
            found.limit(SHUT if what == "shut" else NO_LIMIT)
        elif what == "wait":
            hands.now_s += number / 10
            found.tick()
        if number % 2:  # else the next thing happens before anybody has run
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        told |= collect(callers, sent, told)
    await end(found, hands, callers, sent, told)


def collect(callers: list["asyncio.Task[Ticket]"], sent: list[Ticket], told: set[int]) -> set[int]:
    """Callers that have heard since."""
    new = {at for at, caller in enumerate(callers) if caller.done() and at not in told}
    for at in new:
        caller = callers[at]
        if caller.cancelled():
            continue
        error = caller.exception()
        assert error is None or isinstance(error, RefusalError)
        if error is None:
            sent.append(caller.result())
    return new


async def end(
    found: AsyncScheduler, hands: Hands, callers: list["asyncio.Task[Ticket]"], sent: list[Ticket], told: set[int]
) -> None:
    """All slots, all watts, all time: then nobody is left."""
    found.limit(NO_LIMIT)
    found.swap(table(version="last", rooms={"a": 1000, "b": 1000}))
    found.set_replicas({}, routers=1)
    for _ in range(3):
        hands.now_s += 100.0
        found.tick()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        told |= collect(callers, sent, told)
    assert all(caller.done() for caller in callers)
    assert sum(found.scheduler.in_flight.values()) == len(sent)
    for ticket in sent:
        found.done(ticket, answered=True)
    assert not any(found.scheduler.in_flight.values())
    assert not any(waiting_in(found.scheduler).values())
    assert not found._callers
    async with asyncio.timeout(1):
        await found.drain()


async def test_refusals_say_when_to_come_again() -> None:
    hands = Hands()
    found = front(hands, a=1, b=0, most_waiting=3)
    await found.start(HIGH)
    waiting = [asyncio.create_task(found.start(HIGH)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="the queue of this router is full") as caught:
        await found.start(HIGH)
    assert caught.value.retry_after_s == 3
    hands.now_s = 4.0
    found.tick()
    for caller in waiting:
        with pytest.raises(BusyError, match="no free slot within 4 s"):
            await caller
    found.set_replicas({"a": 0}, routers=1)
    with pytest.raises(NoReplicasError, match="no deployment of this model has a replica"):
        await found.start(HIGH)


async def test_a_route_rests_longer_each_time_and_is_trusted_again() -> None:
    hands = Hands()
    found = front(hands, a=10, b=10)

    def closed() -> frozenset[str]:
        found.tick()
        return found.scheduler._closed

    for rest_s in (1.0, 2.0, 4.0):
        while not closed():
            ticket = await found.start(HIGH)
            if ticket.route == "a":
                found.failed(ticket)
            found.done(ticket, answered=ticket.route == "b")
        assert closed() == {"a"}
        hands.now_s += rest_s - 0.1
        assert closed() == {"a"}
        hands.now_s += 0.1
        assert closed() == frozenset()
