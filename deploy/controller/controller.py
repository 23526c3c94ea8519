"""The controller: every period it reconciles each target.

Targets do not wait for each other: each has its own timeout and backoff, and a target whose last reconcile still runs
is skipped.  Of several controllers only the holder of the lease reads targets, writes to them and reports.  `dry_run`
returns the writes of the next reconcile instead.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import structlog
from prometheus_client import CollectorRegistry

from api.client import ApiError, AsyncClient, NotFoundError
from api.schemas.pages import PAGE_LIMIT_MAX
from api.schemas.targets import Phase, Target, TargetStatus
from api.tracing import span
from deploy.actuators.base import Drain, Step
from deploy.actuators.registry import ActuatorFactory
from deploy.common.backoff import Backoff
from deploy.common.clock import Clock
from deploy.common.errors import NotLeadingError
from deploy.common.leader_election import Leadership, LeaseSettings
from deploy.common.leader_loop import LeaderLoop, Liveness
from deploy.controller.config_changes import ConfigChange
from deploy.controller.metrics import ControllerMetrics
from deploy.controller.plan_reader import PlanReader
from deploy.controller.prometheus_health import HealthReader, unread_health
from deploy.controller.reconcile import ControllerSettings, Reconciler

log = structlog.get_logger()


class Controller:
    def __init__(
        self,
        *,
        api: AsyncClient,
        actuators: ActuatorFactory,
        http: httpx.AsyncClient,
        metrics: ControllerMetrics,
        leadership: Leadership,
        health: HealthReader = unread_health,
        settings: ControllerSettings | None = None,
        clock: Clock | None = None,
        liveness: Liveness | None = None,
        beside: Sequence[Callable[[], Awaitable[bool]]] = (),
    ) -> None:
        self._api = api
        self._beside = beside
        self._leadership = leadership
        self._settings = settings or ControllerSettings()
        self._clock = clock or Clock()
        metrics.set_leader_source(lambda: leadership.holds)
        self._plans = PlanReader(api)
        self._reconciler = Reconciler(
            api=api,
            actuators=actuators,
            http=http,
            health=health,
            plans=self._plans,
            metrics=metrics,
            leadership=leadership,
            settings=self._settings,
            clock=self._clock,
        )
        self._backoff = Backoff(first_s=self._settings.period_s, max_s=self._settings.max_backoff_s)
        self._slots = asyncio.Semaphore(self._settings.concurrency)
        self._busy: set[str] = set()

        self._loop = LeaderLoop(
            leadership=leadership,
            reconcile=self._started,
            metrics=metrics,
            clock=self._clock,
            liveness=liveness or Liveness(),
            period_s=self._settings.period_s,
            timeout_s=self._settings.listing_timeout_s,
        )

    async def run(self) -> None:
        """Reconcile every period, until cancelled.  A slow target does not delay the next reconcile of the others."""
        await self._loop.run()

    async def reconcile(self) -> bool:
        """Request the lease, then reconcile once; true when every due target could be reported on."""
        await self._leadership.renew()
        return await self._loop.once()

    async def _started(self) -> Coroutine[Any, Any, bool]:
        return self._all_of(await self._due_targets())

    async def _all_of(self, due: list[Target] | None) -> bool:
        """Reconcile the targets, beside planning loops and the discovery of nodes."""
        return all(await asyncio.gather(self._reconcile_all(due), *(advance() for advance in self._beside)))

    async def _due_targets(self) -> list[Target] | None:
        """Return the targets to reconcile now, marked as busy; None when the API does not list them."""
        try:
            async with asyncio.timeout(self._settings.listing_timeout_s):
                targets = [target async for target in self._api.iter_targets(limit=PAGE_LIMIT_MAX)]
        except (ApiError, TimeoutError) as error:
            log.warning("reconcile_failed", reason=str(error) or "the API did not list all targets in time")
            return None
        self._backoff.forget_all_but(map(_key, targets))
        self._plans.forget_all_but(target.spec.plan_id for target in targets)
        now_s = self._clock.steady_s()
        due = [target for target in targets if self._is_due(target, now_s)]
        self._busy.update(target.name for target in due)
        return due

    async def _reconcile_all(self, due: list[Target] | None) -> bool:
        return due is not None and all(await asyncio.gather(*map(self._reconcile, due)))

    def _is_due(self, target: Target, now_s: float) -> bool:
        return target.name not in self._busy and self._backoff.is_due(_key(target), now_s=now_s)

    async def _reconcile(self, target: Target) -> bool:
        try:
            async with self._slots:
                with span("reconcile target", fleetwright__target=target.name) as traced:
                    status, _state = await self._reconciler.reconcile(target)
                    traced.set(fleetwright__phase=status.phase.value)
                    self._note_outcome(target, status)
                    return await self._report(target, status)
        except Exception:
            # A defect in one target must not stop the others.
            log.exception("reconcile_error", target=target.name)
            self._backoff.failed(_key(target), now_s=self._clock.steady_s())
            return False
        finally:
            self._busy.discard(target.name)

    def _note_outcome(self, target: Target, status: TargetStatus) -> None:
        if status.phase is Phase.FAILED:
            self._backoff.failed(_key(target), now_s=self._clock.steady_s())
        else:
            self._backoff.succeeded(_key(target))

    async def _report(self, target: Target, status: TargetStatus) -> bool:
        try:
            async with self._leadership.acting():  # the report contains state that the next leader may have stored
                await self._api.report_target_status(target.name, status, held=self._leadership.held)
        except NotLeadingError:
            return False  # the next leader reports
        except NotFoundError:
            log.info("target_deleted", target=target.name)
        except ApiError as error:
            log.warning("report_failed", target=target.name, reason=str(error))
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """One target: its report with all changes that are left, and the writes of the next reconcile."""

    target: Target
    status: TargetStatus
    steps: tuple[Step, ...]
    config_writes: tuple[ConfigChange, ...]
    drains: tuple[Drain, ...] = ()


async def dry_run(
    targets: Iterable[Target],
    *,
    api: AsyncClient,
    actuators: ActuatorFactory,
    http: httpx.AsyncClient,
    health: HealthReader,
    settings: ControllerSettings,
    clock: Clock,
) -> list[DryRun]:
    """Reconcile every target without writes.  No lease is held: the leadership would refuse a write made by mistake."""
    reconciler = Reconciler(
        api=api,
        actuators=actuators,
        http=http,
        health=health,
        plans=PlanReader(api),
        metrics=ControllerMetrics(CollectorRegistry()),
        leadership=Leadership(api=api, settings=LeaseSettings(holder="dry run"), clock=clock),
        settings=settings,
        clock=clock,
        dry_run=True,
    )
    slots = asyncio.Semaphore(settings.concurrency)

    async def one(target: Target) -> DryRun:
        async with slots:
            status, state = await reconciler.reconcile(target)
        return DryRun(
            target=target,
            status=status,
            steps=state.steps,
            config_writes=state.config_writes,
            drains=state.drains,
        )

    return await asyncio.gather(*map(one, targets))


def _key(target: Target) -> tuple[str, int]:
    """A changed target has no backoff: its change may be the fix."""
    return (target.name, target.version)
