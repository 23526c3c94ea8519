"""Clock levels of a Serve target's replicas: read, decide, write.  The next round reads what came of it.

A plan may run replicas below their full clock.  A target that says `follow_clocks` is told so in the `user_config` of
each deployment, key `clock`: Serve hands it to the running replicas and restarts none.  Order, beside that of counts:

    raise     at any time: nothing is given up
    lower     once exactly the wanted replicas run

Serve takes a replica out of its routing for the moment in which it is told, a fifth of a deployment at a time and at
least one, so a deployment of one replica answers a moment later then.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import structlog

from api.client import AsyncFleetwright
from api.schemas.targets import Phase, RayServeApplication, Target
from deploy.actuators import Maker
from deploy.errors import ActuationError, OvertakenError
from deploy.leadership import Leadership
from deploy.metrics import ControllerMetrics
from deploy.plans import PlanReader, check_fresh, planned_clocks
from deploy.ray_serve import RayServeActuator
from deploy.seen import joined
from deploy.serve_config import ServeConfig, Served

KEY = "clock"
FULL = 1.0
_UNDER_WAY = {Phase.APPLIED: Phase.APPLYING, Phase.ROLLED_BACK: Phase.ROLLING_BACK}  # settled -> with clocks to set
_BACK = {Phase.ROLLING_BACK, Phase.ROLLED_BACK}  # to what was good, however old its plan
_MAY_RAISE = {Phase.APPLYING, Phase.ROLLING_BACK, *_UNDER_WAY}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
    """One deployment's move from what it is told to what is planned."""

    gpu: str
    deployment: str
    now: float
    planned: float


def changes_left(
    planned: Mapping[str, float], *, deployments: Mapping[str, str], told: Mapping[str, float]
) -> tuple[ClockChange, ...]:
    """By GPU type; those that are as planned are left out."""
    return tuple(
        ClockChange(gpu=gpu, deployment=deployments[gpu], now=told[gpu], planned=clock)
        for gpu, clock in sorted(planned.items())
        if told[gpu] != clock
    )


def due(changes: tuple[ClockChange, ...], *, phase: Phase) -> tuple[ClockChange, ...]:
    """Those that may be made now."""
    if phase in _UNDER_WAY:
        return changes
    return tuple(change for change in changes if change.planned > change.now) if phase in _MAY_RAISE else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockLevels:
    """Sets clock levels of targets."""

    api: AsyncFleetwright
    actuators: Maker
    leadership: Leadership
    metrics: ControllerMetrics
    plans: PlanReader
    now: Callable[[], datetime]
    plan_max_age_s: float

    async def advance(
        self,
        target: Target,
        plan_id: str | None,
        *,
        phase: Phase,
        message: str | None,
        only_looks: bool,
        may_write: bool,
    ) -> tuple[Phase, str | None]:
        """What is left to do for the plan pursued, as far as it may be done now."""
        application = target.spec.application
        if plan_id is None or not isinstance(application, RayServeApplication) or not application.follow_clocks:
            return phase, message
        config, plan = self._config(application), await self.plans.get(plan_id)
        planned = planned_clocks(plan, target.spec)
        told = _told(await config.read(), application)
        changes = changes_left(planned, deployments=application.deployments, told=told)
        if not changes:
            return phase, message
        message = joined(message, *(f"clock of {each.gpu}: {each.now:g}, planned {each.planned:g}" for each in changes))
        if only_looks:
            return phase, message
        if not may_write or target.spec.require_approval:
            return (Phase.RECOMMENDED if phase in {Phase.OBSERVED, Phase.APPLIED} else phase), message
        if steps := due(changes, phase=phase):
            if phase not in _BACK:
                check_fresh(plan, now=self.now(), max_age_s=self.plan_max_age_s)
            if await self._write(target, config, application, steps):
                return Phase.FROZEN, message
        return _UNDER_WAY.get(phase, phase), message

    async def _write(
        self, target: Target, config: ServeConfig, application: RayServeApplication, steps: tuple[ClockChange, ...]
    ) -> bool:
        """Whether a freeze came in between."""
        for step in steps:
            if (await self.api.get_target(target.name)).document != target:
                return False
            if (await self.api.get_freeze()).document.frozen:
                return True
            try:
                async with self.leadership.acting():
                    await config.change_user_config(
                        application=application.application, deployment=step.deployment, key=KEY, value=step.planned
                    )
            except OvertakenError:
                return False
            self.metrics.wrote(target=target.name, kind=KEY)
            log.info("clock_set", target=target.name, gpu=step.gpu, clock_before=step.now, clock_after=step.planned)
        return False

    def _config(self, application: RayServeApplication) -> ServeConfig:
        actuator = self.actuators(application)
        if not isinstance(actuator, RayServeActuator):
            raise ActuationError("clock levels are told to Ray Serve applications only")
        return ServeConfig(actuator.http, str(application.dashboard_url))


def _told(served: Served, application: RayServeApplication) -> dict[str, float]:
    found = served.application(application.application)
    told = {gpu: found.deployment(name).user_config.get(KEY) for gpu, name in application.deployments.items()}
    return {gpu: float(clock) if isinstance(clock, int | float) else FULL for gpu, clock in told.items()}
