"""The loop of a controller of which several processes may run: it reconciles once per period while it leads.

Level-triggered: a reconcile starts from what it reads and leaves nothing in memory that the next one needs, so the
loop may end anywhere and another process continues.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from deploy.common.clock import Clock
from deploy.common.leader_election import Leadership, LeaseRole
from deploy.common.liveness import Liveness

# What a reconcile awaits delays the next one; the coroutine that it returns may overlap with the next one.  That
# coroutine returns whether nothing failed.
Reconcile = Callable[[], Awaitable[Coroutine[Any, Any, bool]]]


class ReconcileMetrics(Protocol):
    def count_reconcile(self, *, ok: bool, duration_s: float, at: datetime) -> None:
        """Count one reconcile of the leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLoop:
    """Runs `reconcile` while this process leads."""

    leadership: Leadership
    reconcile: Reconcile
    metrics: ReconcileMetrics
    clock: Clock
    liveness: Liveness
    period_s: float
    timeout_s: float  # of what `reconcile` awaits

    async def run(self) -> None:
        """Reconcile every period, until cancelled; never before the first request for the lease."""
        longest_s = self.period_s + self.timeout_s
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.leadership.run())
            while True:
                self.liveness.beat(longest_s=longest_s)
                if self.leadership.was_requested:
                    tasks.create_task(await self._started())
                await self.clock.sleep(self.period_s)

    async def once(self) -> bool:
        """Reconcile once, and return whether nothing failed."""
        return await (await self._started())

    async def _started(self) -> Coroutine[Any, Any, bool]:
        role, started_s = self.leadership.role, self.clock.steady_s()
        if role is LeaseRole.FOLLOWER:
            return _value(ok=True)  # not counted: success of a follower must not hide a failing leader
        rest = await self.reconcile() if role is LeaseRole.LEADER else _value(ok=False)
        return self._counted(rest, started_s)

    async def _counted(self, rest: Coroutine[Any, Any, bool], started_s: float) -> bool:
        ok = await rest
        duration_s = self.clock.steady_s() - started_s
        self.metrics.count_reconcile(ok=ok, duration_s=duration_s, at=self.clock.now())
        return ok


async def _value(*, ok: bool) -> bool:
    return ok
