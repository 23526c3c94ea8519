"""The controller: every period, each target is brought one round nearer to its plan.

Level-triggered.  A round starts from what the API and the targets say now and leaves nothing behind that the next one
needs; it may be ended anywhere and another process may go on.  Targets do not wait for each other: each has its own
timeout and its own backoff, and one that is still busy is passed over while the others have their next round.

Of several controllers only the one that holds the lease reads targets, writes to them and reports.
"""

import asyncio
from dataclasses import dataclass

import httpx
import structlog

from api.client import ApiError, AsyncClient, NotFoundError
from api.schemas.pages import PAGE_LIMIT_MAX
from api.schemas.targets import Phase, Target, TargetStatus
from deploy.actuators.registry import ActuatorFactory
from deploy.common.backoff import Backoff
from deploy.common.clock import Clock
from deploy.common.errors import NotLeadingError
from deploy.common.leader_election import Leadership, Standing
from deploy.common.liveness import Pulse
from deploy.controller.metrics import ControllerMetrics
from deploy.controller.plan_reader import PlanReader
from deploy.controller.prometheus_health import HealthReader, unread_health
from deploy.controller.reconcile import Reconciler
from deploy.expert_rollout.controller import ExpertMaps

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Bounds of the loop."""

    period_s: float = 5.0
    concurrency: int = 32  # targets at work at once
    listing_timeout_s: float = 60.0  # for the API to tell all targets
    target_timeout_s: float = 30.0  # for everything done to one target in one round
    backoff_most_s: float = 60.0
    # Demand repeats by the week: a plan older than that was made for another one.
    plan_max_age_s: float = 7 * 86_400.0
    # Whatever the targets say: look and report, write nothing.
    observe_only: bool = False


class Controller:
    """Runs rounds over all targets; writes to the API through its client only."""

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
        pulse: Pulse | None = None,
    ) -> None:
        self._api = api
        self._leadership = leadership
        self._settings = settings or ControllerSettings()
        self._clock = clock or Clock()
        self._metrics, self._pulse = metrics, pulse or Pulse()
        self._plans = PlanReader(api)
        self._reconciler = new_reconciler(
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
        self._backoff = Backoff(first_s=self._settings.period_s, most_s=self._settings.backoff_most_s)
        self._slots = asyncio.Semaphore(self._settings.concurrency)
        self._busy: set[str] = set()

    async def run(self) -> None:
        """A round every period, until cancelled.  Targets that take longer do not hold the next round up."""
        longest_s = self._settings.listing_timeout_s + self._settings.period_s
        async with asyncio.TaskGroup() as rounds:
            rounds.create_task(self._leadership.run())
            while True:
                self._pulse.beat(longest_s=longest_s)
                started_s = self._clock.steady_s()
                rounds.create_task(self._visit_all(await self._due_targets(), started_s))
                await self._clock.sleep(self._settings.period_s)

    async def run_round(self) -> bool:
        """One round over the targets that are due; true when every one of them could be reported on."""
        await self._leadership.renew()
        started_s = self._clock.steady_s()
        return await self._visit_all(await self._due_targets(), started_s)

    async def _due_targets(self) -> list[Target] | None:
        """The targets to visit now, marked as busy: none while another leads, None when the API does not tell."""
        if self._leadership.standing is not Standing.LEADS:
            return [] if self._leadership.standing is Standing.FOLLOWS else None
        try:
            async with asyncio.timeout(self._settings.listing_timeout_s):
                targets = [target async for target in self._api.iter_targets(limit=PAGE_LIMIT_MAX)]
        except (ApiError, TimeoutError) as error:
            log.warning("round_failed", reason=str(error) or "the API does not tell all targets in time")
            return None
        self._backoff.forget_all_but(map(_key, targets))
        self._plans.forget_all_but(target.spec.plan_id for target in targets)
        now_s = self._clock.steady_s()
        due = [target for target in targets if self._is_due(target, now_s)]
        self._busy.update(target.name for target in due)
        return due

    async def _visit_all(self, due: list[Target] | None, started_s: float) -> bool:
        self._metrics.leads(leads=self._leadership.holds)
        if self._leadership.standing is Standing.FOLLOWS:
            return True  # no round: a follower's peace must not hide that the leader fails
        ok = due is not None and all(await asyncio.gather(*map(self._visit, due)))
        self._metrics.round_ended(ok=ok, duration_s=self._clock.steady_s() - started_s)
        return ok

    def _is_due(self, target: Target, now_s: float) -> bool:
        return target.name not in self._busy and self._backoff.is_due(_key(target), now_s=now_s)

    async def _visit(self, target: Target) -> bool:
        try:
            async with self._slots:
                status = await self._reconciler.reconcile(target)
                self._note_outcome(target, status)
                return await self._report(target, status)
        except Exception:
            # A defect met on one target must not end the work on the others.
            log.exception("target_defect", target=target.name)
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
            async with self._leadership.acting():  # it holds what is remembered, which the next leader may have written
                await self._api.report_target_status(target.name, status)
        except NotLeadingError:
            return False  # the next leader looks for itself
        except NotFoundError:
            log.info("target_gone", target=target.name)
        except ApiError as error:
            log.warning("report_failed", target=target.name, reason=str(error))
            return False
        return True


def new_reconciler(
    *,
    api: AsyncClient,
    actuators: ActuatorFactory,
    http: httpx.AsyncClient,
    health: HealthReader,
    plans: PlanReader,
    metrics: ControllerMetrics,
    leadership: Leadership,
    settings: ControllerSettings,
    clock: Clock,
    dry_run: bool = False,
) -> Reconciler:
    """All that is done to one target, put together."""
    return Reconciler(
        api=api,
        actuators=actuators,
        http=http,
        health=health,
        plans=plans,
        metrics=metrics,
        leadership=leadership,
        expert_maps=ExpertMaps(api=api, actuators=actuators, http=http, leadership=leadership, wrote=metrics.wrote),
        now=clock.now,
        timeout_s=settings.target_timeout_s,
        plan_max_age_s=settings.plan_max_age_s,
        observe_only=settings.observe_only,
        dry_run=dry_run,
    )


def _key(target: Target) -> tuple[str, int]:
    """A changed target is a new one to the backoff: its change may be the cure."""
    return (target.name, target.version)
