"""The loop of a controller of which several processes may run: it reconciles once per period while it leads, or earlier
after a change that lets the next reconcile do more.

Level-triggered: a reconcile starts from what it reads and leaves nothing in memory that the next one needs, so the
loop may end anywhere and another process continues.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import structlog
from prometheus_client import Counter, Gauge, Histogram

from api.client import ApiError
from api.tracing import span
from deploy.common.clock import Clock
from deploy.common.errors import ActuationError
from deploy.common.leader_election import Leadership, LeaseRole

log = structlog.get_logger()

ALLOWANCE: Final = 2.0  # of the longest turn: a loop on a busy machine is not stuck yet
FIRST_S: Final = 1.0  # until the lease was requested; a long period does not delay the first reconcile
# What a reconcile awaits delays the next one; the coroutine that it returns may overlap with the next one.  That
# coroutine returns whether nothing failed.
Reconcile = Callable[[], Awaitable[Coroutine[Any, Any, bool]]]
# A reconcile takes a few HTTP calls, up to the timeout of a controller.
BUCKETS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Liveness:
    """Whether a loop still makes progress, for a health endpoint in another thread.

    Each turn of the loop sets the time by which the next turn begins.  A loop that waits keeps setting it; a loop that
    is stuck does not.
    """

    def __init__(self, *, steady_s: Callable[[], float] = time.monotonic) -> None:
        self._steady_s = steady_s
        self._next_by_s = float("-inf")

    def beat(self, *, longest_s: float) -> None:
        """Record the start of a turn that takes at most this long."""
        self._next_by_s = self._steady_s() + ALLOWANCE * longest_s

    def is_alive(self) -> bool:
        """Return whether the loop has begun and no turn is overdue."""
        return self._steady_s() <= self._next_by_s


class ReconcileMetrics:
    """Metrics that every controller has; each controller registers them under names of its own."""

    def __init__(self, *, reconciles: Counter, duration_s: Histogram, is_leader: Gauge) -> None:
        self._reconciles, self._duration_s, self._is_leader = reconciles, duration_s, is_leader
        for outcome in ("ok", "failed"):  # so that the first failure is an increase
            reconciles.labels(outcome)

    def set_leader_source(self, holds: Callable[[], bool]) -> None:
        """Set the function that each scrape calls for the leader gauge."""
        self._is_leader.set_function(lambda: float(holds()))

    def count_reconcile(self, *, ok: bool, duration_s: float, at: datetime) -> None:  # noqa: ARG002 # for subclasses
        """Count one reconcile of the leader."""
        self._reconciles.labels("ok" if ok else "failed").inc()
        self._duration_s.observe(duration_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLoop:
    leadership: Leadership
    reconcile: Reconcile
    metrics: ReconcileMetrics
    clock: Clock
    liveness: Liveness
    period_s: float
    timeout_s: float  # of what `reconcile` awaits
    again: asyncio.Event = field(default_factory=asyncio.Event)  # set: reconcile again without waiting for the period

    async def run(self) -> None:
        """Reconcile every period, until cancelled; never before the first request for the lease."""
        longest_s = self.period_s + self.timeout_s
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.leadership.run())
            while True:
                self.liveness.beat(longest_s=longest_s)
                self.again.clear()
                if requested := self.leadership.was_requested:
                    tasks.create_task(await self._started())
                await self._pause(self.period_s if requested else min(self.period_s, FIRST_S))

    async def once(self) -> bool:
        return await (await self._started())

    async def _pause(self, seconds: float) -> None:
        """Wait for the time, or for `again`."""
        period, again = (
            asyncio.ensure_future(self.clock.sleep(seconds)),
            asyncio.ensure_future(self.again.wait()),
        )
        try:
            await asyncio.wait((period, again), return_when=asyncio.FIRST_COMPLETED)
        finally:
            period.cancel()
            again.cancel()
        if period.done() and not period.cancelled():
            period.result()

    async def _started(self) -> Coroutine[Any, Any, bool]:
        role, started_s = self.leadership.role, self.clock.steady_s()
        if role is LeaseRole.FOLLOWER:
            return finished(ok=True)  # not counted: success of a follower must not hide a failing leader
        rest = await self.reconcile() if role is LeaseRole.LEADER else finished(ok=False)
        return self._counted(rest, started_s)

    async def _counted(self, rest: Coroutine[Any, Any, bool], started_s: float) -> bool:
        with span("reconcile"):
            ok = await rest
        duration_s = self.clock.steady_s() - started_s
        self.metrics.count_reconcile(ok=ok, duration_s=duration_s, at=self.clock.now())
        return ok


async def attempt(reconcile: Callable[[], Awaitable[bool]], *, timeout_s: float) -> bool:
    """Reconcile within a time; a failure, or a defect, is logged and must not end the loop."""
    try:
        async with asyncio.timeout(timeout_s):
            return await reconcile()
    except (ApiError, ActuationError, TimeoutError) as error:
        log.warning("reconcile_failed", reason=str(error) or type(error).__name__)
    except Exception:
        log.exception("reconcile_error")
    return False


async def finished(*, ok: bool) -> bool:
    """Return the outcome of a reconcile that leaves nothing to be done beside the next one."""
    return ok
