"""Callers in an event loop: for any events, every slot is released and every caller gets a result."""

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


class ManualClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now_s = 0.0

    @property
    def clock(self) -> Clock:
        return replace(Clock(), steady_s=lambda: self.now_s)


def async_scheduler(manual_clock: ManualClock, *, a: int = 3, b: int = 2, max_waiting: int = 10) -> AsyncScheduler:
    return AsyncScheduler(
        table(slots={"a": a, "b": b}),
        settings=RouterSettings(max_waiting=max_waiting, patience_s=4.0),
        metrics=RouterMetrics(PrometheusBackend(CollectorRegistry())),
        clock=manual_clock.clock,
    )


OPS = st.lists(
    st.tuples(
        st.sampled_from(["high", "low", "hang up", "done", "fail", "swap", "replicas", "shut", "open", "wait"]),
        st.integers(0, 30),
    ),
    max_size=60,
)


@given(OPS)
def test_every_slot_is_released_and_every_caller_gets_a_result(ops: list[tuple[str, int]]) -> None:
    asyncio.run(run_events(ops))


async def run_events(ops: list[tuple[str, int]]) -> None:
    manual_clock = ManualClock()
    found = async_scheduler(manual_clock)
    callers: list[asyncio.Task[Ticket]] = []
    sent: list[Ticket] = []
    finished: set[int] = set()
    for event, number in ops:
        if event in {"high", "low"}:
            callers.append(asyncio.create_task(found.start(HIGH if event == "high" else LOW)))
        elif event == "hang up" and callers:
            callers[number % len(callers)].cancel()  # possibly at the moment of its start
        elif event == "done" and sent:
            found.done(sent.pop(number % len(sent)), succeeded=True)
        elif event == "fail" and sent:
            callers.append(asyncio.create_task(found.retry(sent.pop(number % len(sent)))))
            await asyncio.sleep(0)  # a forwarder awaits it directly: nothing can cancel it before it begins
        elif event == "swap":
            found.swap(table(version=str(number), slots={"a": number % 5, "b": 2}))
        elif event == "replicas":
            found.set_replicas({"a": number % 4}, routers=1 + number % 2)
        elif event in {"shut", "open"}:
            found.limit(SHUT if event == "shut" else NO_LIMIT)
        elif event == "wait":
            manual_clock.now_s += number / 10
            found.tick()
        if number % 2:  # otherwise the next event happens before any task runs
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        finished |= collect(callers, sent, finished)
    await end(found, manual_clock, callers, sent, finished)


def collect(callers: list["asyncio.Task[Ticket]"], sent: list[Ticket], finished: set[int]) -> set[int]:
    """The indices of callers that have finished since the last call."""
    new = {at for at, caller in enumerate(callers) if caller.done() and at not in finished}
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
    found: AsyncScheduler,
    manual_clock: ManualClock,
    callers: list["asyncio.Task[Ticket]"],
    sent: list[Ticket],
    finished: set[int],
) -> None:
    """With unlimited slots, power and time, no caller is left."""
    found.limit(NO_LIMIT)
    found.swap(table(version="last", slots={"a": 1000, "b": 1000}))
    found.set_replicas({}, routers=1)
    for _ in range(3):
        manual_clock.now_s += 100.0
        found.tick()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        finished |= collect(callers, sent, finished)
    assert all(caller.done() for caller in callers)
    assert sum(found.scheduler.in_flight.values()) == len(sent)
    for ticket in sent:
        found.done(ticket, succeeded=True)
    assert not any(found.scheduler.in_flight.values())
    assert not any(waiting_in(found.scheduler).values())
    assert not found._callers
    async with asyncio.timeout(1):
        await found.drain()


async def test_refusals_contain_a_retry_time() -> None:
    manual_clock = ManualClock()
    found = async_scheduler(manual_clock, a=1, b=0, max_waiting=3)
    await found.start(HIGH)
    waiting = [asyncio.create_task(found.start(HIGH)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="the queue of this router is full") as caught:
        await found.start(HIGH)
    assert caught.value.retry_after_s == 3
    manual_clock.now_s = 4.0
    found.tick()
    for caller in waiting:
        with pytest.raises(BusyError, match="no free slot within 4 s"):
            await caller
    found.set_replicas({"a": 0}, routers=1)
    with pytest.raises(NoReplicasError, match="no deployment of this model has a replica"):
        await found.start(HIGH)


async def test_a_failing_route_is_closed_with_exponential_backoff() -> None:
    manual_clock = ManualClock()
    found = async_scheduler(manual_clock, a=10, b=10)

    def closed() -> frozenset[str]:
        found.tick()
        return found.scheduler._closed

    for backoff_s in (1.0, 2.0, 4.0):
        while not closed():
            ticket = await found.start(HIGH)
            if ticket.route == "a":
                found.failed(ticket)
            found.done(ticket, succeeded=ticket.route == "b")
        assert closed() == {"a"}
        manual_clock.now_s += backoff_s - 0.1
        assert closed() == {"a"}
        manual_clock.now_s += 0.1
        assert closed() == frozenset()
