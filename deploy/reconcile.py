"""One target, one round: observe, diff, order, apply, report.  The next round's reading verifies what was applied.

Holds no state but a cache of immutable plans, so that it may be interrupted anywhere.  docs/controller.md draws the
state machine.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from api.client import AsyncFleetwright
from api.schemas.targets import Change, Mode, Phase, RayServeApplication, Target, TargetStatus
from deploy.actuator import Actuator, Observation, Replicas
from deploy.changes import missing_replicas, raise_to_floor
from deploy.leadership import Leadership
from deploy.metrics import ControllerMetrics
from deploy.plans import PlanReader, check_fresh, planned_replicas
from fleet.errors import FleetwrightError

MESSAGE_MAX_CHARS = 500
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]+")

log = structlog.get_logger()


@dataclass(slots=True)
class _Seen:
    """What is known so far; a failure reports what was seen before it."""

    observation: Observation | None = None
    planned: Replicas = field(default_factory=dict)
    wanted: Replicas = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler:
    """Moves targets towards their plans."""

    api: AsyncFleetwright
    actuators: Callable[[RayServeApplication], Actuator]
    plans: PlanReader
    metrics: ControllerMetrics
    leadership: Leadership
    now: Callable[[], datetime]
    timeout_s: float
    plan_max_age_s: float
    observe_only: bool = False

    async def reconcile(self, target: Target) -> TargetStatus:
        """Do what may be done for this target now, and say how it stands."""
        seen = _Seen()
        try:
            async with asyncio.timeout(self.timeout_s):
                phase, message = await self._pursue(target, seen)
        except FleetwrightError as error:
            phase, message = Phase.FAILED, str(error)
        except TimeoutError:
            phase, message = Phase.FAILED, f"not done within {self.timeout_s:g} s"
        if phase is Phase.FAILED:
            log.warning("target_failed", target=target.name, plan_id=target.spec.plan_id, reason=message)
        return self._status(target, seen, phase, message)

    async def _pursue(self, target: Target, seen: _Seen) -> tuple[Phase, str | None]:
        spec = target.spec
        actuator = self.actuators(spec.application)
        seen.observation = observation = await actuator.observe()
        if spec.plan_id is None:
            return Phase.OBSERVED, observation.note
        plan = await self.plans.get(spec.plan_id)
        seen.planned = planned_replicas(plan, spec)
        seen.wanted = wanted = raise_to_floor(
            planned=seen.planned, asked=observation.asked, min_replicas=spec.min_replicas
        )
        message = _message(spec.min_replicas, seen, observation)
        if self._only_looks(target):
            return Phase.OBSERVED, message
        if actuator.verify(wanted=wanted, observation=observation):
            return Phase.APPLIED if spec.mode is Mode.APPLY else Phase.OBSERVED, message
        check_fresh(plan, now=self.now(), max_age_s=self.plan_max_age_s)
        if spec.mode is Mode.RECOMMEND:
            return Phase.RECOMMENDED, message
        return await self._carry_out(target, actuator, wanted, observation, message)

    async def _carry_out(
        self, target: Target, actuator: Actuator, wanted: Replicas, observation: Observation, message: str | None
    ) -> tuple[Phase, str | None]:
        # Read as late as possible: a target switched to observe holds from this moment.
        if (await self.api.get_target(target.name)).document != target:
            return Phase.APPLYING, "the target was changed a moment ago; nothing was written in this round"
        for step in actuator.plan_changes(wanted=wanted, observation=observation, max_step=target.spec.max_step):
            if (freeze := (await self.api.get_freeze()).document).frozen:  # before each write: it may come between two
                return Phase.FROZEN, freeze.reason or message
            async with self.leadership.acting():
                await actuator.apply(step)
            self.metrics.wrote(target=target.name, kind="scale")
            log.info(
                "scale_asked",
                target=target.name,
                plan_id=target.spec.plan_id,
                gpu=step.gpu,
                replicas_before=step.replicas_before,
                replicas_after=step.replicas_after,
            )
        return Phase.APPLYING, message

    def _only_looks(self, target: Target) -> bool:
        return self.observe_only or target.spec.mode is Mode.OBSERVE

    def _status(self, target: Target, seen: _Seen, phase: Phase, message: str | None) -> TargetStatus:
        return TargetStatus(
            phase=phase,
            observed_at=self.now(),
            plan_id=target.spec.plan_id,
            planned=dict(seen.planned),
            applied=dict(seen.observation.running) if seen.observation is not None else {},
            changes=() if self._only_looks(target) else _changes(target.spec.application, seen),
            message=_one_line(message) if message else None,
        )


def _changes(application: RayServeApplication, seen: _Seen) -> tuple[Change, ...]:
    """All moves that are left, whether or not they may be made in this round."""
    if (observation := seen.observation) is None:
        return ()
    return tuple(
        Change(
            gpu=gpu,
            deployment=application.deployments[gpu],
            replicas_now=observation.running[gpu] if observation.running[gpu] != count else observation.asked[gpu],
            replicas_planned=count,
        )
        for gpu, count in sorted(seen.wanted.items())
        if (observation.running[gpu], observation.asked[gpu]) != (count, count)
    )


def _message(min_replicas: int, seen: _Seen, observation: Observation) -> str | None:
    notes = []
    if (in_all := sum(seen.planned.values())) < min_replicas:
        notes.append(f"the plan has {in_all} in all; min_replicas keeps {min_replicas}")
    asked_but_absent = {
        gpu: count
        for gpu, count in missing_replicas(wanted=seen.wanted, observation=observation).items()
        if observation.asked[gpu] >= seen.wanted[gpu]
    }
    if asked_but_absent:
        notes.append("waiting for " + ", ".join(f"{count} {gpu}" for gpu, count in asked_but_absent.items()))
    if observation.note is not None:
        notes.append(observation.note)
    return "; ".join(notes) or None


def _one_line(text: str) -> str:
    """Text as a status may carry it: other people's errors hold line ends, and have no bounds."""
    flat = _CONTROL_CHARACTERS.sub(" ", text).strip()
    return flat if len(flat) <= MESSAGE_MAX_CHARS else flat[: MESSAGE_MAX_CHARS - 1] + "…"
