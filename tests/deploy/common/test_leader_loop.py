"""The loop of every controller reconciles only as leader, and counts no reconciles of a follower."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

import pytest

from deploy.common.clock import Clock
from deploy.common.leader_election import Leadership, LeaseRole
from deploy.common.leader_loop import ALLOWANCE, LeaderLoop, Liveness, ReconcileMetrics

pytestmark = pytest.mark.anyio


@dataclass
class Lease:
    """A leadership whose role the test sets."""

    role: LeaseRole = LeaseRole.LEADER
    was_requested: bool = True

    async def run(self) -> None:
        await asyncio.Event().wait()


@dataclass
class Counts:
    """The counted reconciles."""

    oks: list[bool] = field(default_factory=list)

    def count_reconcile(self, *, ok: bool, duration_s: float, at: datetime) -> None:
        assert duration_s >= 0.0
        assert at.tzinfo is not None
        self.oks.append(ok)


@dataclass
class Work:
    """Reconciles whose second part waits for the test."""

    started: int = 0
    ok: bool = True
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def reconcile(self) -> Coroutine[Any, Any, bool]:
        self.started += 1
        return self._rest()

    async def _rest(self) -> bool:
        await self.go.wait()
        return self.ok


def loop_of(
    lease: Lease, work: Work, counts: Counts, *, clock: Clock | None = None, period_s: float = 0.001
) -> LeaderLoop:
    return LeaderLoop(
        leadership=cast("Leadership", lease),
        reconcile=work.reconcile,
        metrics=cast("ReconcileMetrics", counts),
        clock=clock or Clock(),
        liveness=Liveness(),
        period_s=period_s,
        timeout_s=1.0,
    )


@pytest.mark.parametrize(
    ("role", "ok", "result", "counted"),
    [
        (LeaseRole.LEADER, True, True, [True]),
        (LeaseRole.LEADER, False, False, [False]),
        (LeaseRole.FOLLOWER, False, True, []),
        (LeaseRole.UNKNOWN, True, False, [False]),
    ],
)
async def test_only_a_leader_reconciles_and_followers_count_nothing(
    role: LeaseRole, *, ok: bool, result: bool, counted: list[bool]
) -> None:
    work, counts = Work(ok=ok), Counts()
    work.go.set()
    assert await loop_of(Lease(role), work, counts).once() is result
    assert (counts.oks, work.started) == (counted, int(role is LeaseRole.LEADER))


async def test_a_slow_reconcile_does_not_delay_the_next_one_and_the_loop_stays_alive() -> None:
    work, counts = Work(), Counts()
    loop = loop_of(Lease(), work, counts)
    running = asyncio.create_task(loop.run())
    async with asyncio.timeout(60.0):
        while work.started < 3:
            await asyncio.sleep(0)
    assert counts.oks == []
    assert loop.liveness.is_alive()
    work.go.set()
    async with asyncio.timeout(60.0):
        while len(counts.oks) < 3:
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])


async def test_progress_starts_one_reconcile_before_the_period_is_over() -> None:
    async def sleep(_seconds: float) -> None:
        await asyncio.Event().wait()

    work = Work()
    work.go.set()
    loop = loop_of(Lease(), work, Counts(), clock=Clock(sleep=sleep))
    running = asyncio.create_task(loop.run())
    for expected in (1, 2, 3):
        async with asyncio.timeout(60.0):
            while work.started < expected:
                await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert work.started == expected
        loop.again.set()
    running.cancel()
    await asyncio.wait([running])


async def test_nothing_is_reconciled_before_the_lease_was_requested() -> None:
    lease, work = Lease(was_requested=False), Work()
    periods = 0

    async def sleep(_seconds: float) -> None:
        nonlocal periods
        periods += 1
        if periods == 3:
            assert work.started == 0
            lease.was_requested = True
        await asyncio.sleep(0)

    running = asyncio.create_task(loop_of(lease, work, Counts(), clock=Clock(sleep=sleep)).run())
    async with asyncio.timeout(60.0):
        while not work.started:
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert periods >= 3


async def test_a_long_period_does_not_delay_the_first_reconcile() -> None:
    lease, work = Lease(was_requested=False), Work()
    slept_s: list[float] = []

    async def sleep(seconds: float) -> None:
        slept_s.append(seconds)
        lease.was_requested = True
        await asyncio.sleep(0)

    running = asyncio.create_task(loop_of(lease, work, Counts(), clock=Clock(sleep=sleep), period_s=3600.0).run())
    async with asyncio.timeout(60.0):
        while len(slept_s) < 2:
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert slept_s[:2] == [1.0, 3600.0]
    assert work.started >= 1


def test_liveness_lasts_from_the_first_beat_until_the_next_one_is_overdue() -> None:
    now_s = 0.0
    liveness = Liveness(steady_s=lambda: now_s)
    assert not liveness.is_alive()
    liveness.beat(longest_s=5.0)
    now_s = 5.0 * ALLOWANCE
    assert liveness.is_alive()
    now_s += 0.1
    assert not liveness.is_alive()
    liveness.beat(longest_s=1.0)
    assert liveness.is_alive()
