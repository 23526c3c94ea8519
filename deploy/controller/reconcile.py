"""One target, one round: observe, diff, order, apply, report.  The next round's reading verifies what was applied.

Holds no state but a cache of immutable plans, so that it may be interrupted anywhere: what a round leaves to the next
(`deploy/controller/target_state.py`) is kept by the API, and written there before the act that it stands for.
docs/controller.md draws the state machine.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import structlog

from api.client import AsyncFleetwright, NotFoundError
from api.schemas.plans import PlanRecord
from api.schemas.probes import HealthProbe
from api.schemas.target_state import Approval, TargetMemory
from api.schemas.targets import Mode, Phase, Target, TargetStatus
from deploy.actuators.base import Actuator, Step
from deploy.actuators.registry import Maker
from deploy.common.errors import PlanUnusableError
from deploy.common.leader_election import Leadership
from deploy.controller.config_changes import Telling, due, without_losses
from deploy.controller.health_check import Judgement, Verdict, judge, judged_at
from deploy.controller.metrics import ControllerMetrics
from deploy.controller.plan_reader import PlanReader, check_fresh, planned_replicas
from deploy.controller.prometheus_health import HealthReader
from deploy.controller.reconcile_state import Seen, joined, one_line
from deploy.controller.rollout import raise_to_floor
from deploy.controller.serve_settings import ServeSettings, wanted_settings
from deploy.controller.target_state import (
    arrived,
    began,
    is_licensed,
    licensed,
    maps_approved,
    refused,
    settled_s,
    spend,
    verified,
    window_left,
    window_opens_at,
    with_goal,
    with_refusal_in_force,
)
from deploy.expert_rollout.controller import ExpertMaps
from fleet.errors import FleetwrightError

log = structlog.get_logger()

NOWHERE_TO_GO = "no plan was verified before, so nothing more is changed"

Outcome = tuple[Phase, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciler:
    """Moves targets towards their plans."""

    api: AsyncFleetwright
    actuators: Maker
    health: HealthReader
    plans: PlanReader
    metrics: ControllerMetrics
    leadership: Leadership
    expert_maps: ExpertMaps
    settings: ServeSettings
    now: Callable[[], datetime]
    timeout_s: float
    plan_max_age_s: float
    observe_only: bool = False
    dry_run: bool = False  # find out what would be done, and write nothing, not even reports

    async def reconcile(self, target: Target) -> TargetStatus:
        """Do what may be done for this target now, and say how it stands."""
        return (await self.pursue(target))[0]

    async def pursue(self, target: Target) -> tuple[TargetStatus, Seen]:
        """The same, with what was found out: the steps that were taken, or would be."""
        seen = Seen(target)
        try:
            async with asyncio.timeout(self.timeout_s):
                phase, message = await self._bring_maps(seen, *await self._look(seen))
        except FleetwrightError as error:
            phase, message = Phase.FAILED, str(error)
        except TimeoutError:
            phase, message = Phase.FAILED, f"not done within {self.timeout_s:g} s"
        if phase is Phase.FAILED:
            log.warning("target_failed", target=target.name, plan_id=target.spec.plan_id, reason=message)
        return self._report(seen, phase, message), seen

    async def _bring_maps(self, seen: Seen, phase: Phase, message: str | None) -> Outcome:
        outcome = await self.expert_maps.advance(
            seen.target,
            phase=phase,
            message=message,
            only_looks=self._only_looks(seen.target),
            may_write=self._acts_on(seen.target) and not self.dry_run,
            approved=seen.memory.approved_maps,
        )
        seen.expert_maps = outcome.maps
        if outcome.digest is not None:
            seen.digest = outcome.digest
            if self._acts_on(seen.target) and (approval := _approval_of(seen)) is not None:
                # Written from the next round on, by when the API keeps that it was taken up.
                seen.memory = maps_approved(seen.memory, digest=outcome.digest, approval_number=approval.number)
        return outcome.phase, outcome.message

    async def _look(self, seen: Seen) -> Outcome:
        spec = seen.target.spec
        actuator = self.actuators(spec.application)
        seen.observation = await actuator.observe()
        if self._acts_on(seen.target) and (spec.plan_id is not None or spec.require_approval):
            await self._recall(seen)
        if spec.plan_id is None:
            return Phase.OBSERVED, seen.observation.note
        if seen.memory.refused is not None:
            return await self._retreat(seen, actuator)
        plan = await self._aim(seen, spec.plan_id)
        in_place = self._is_in_place(seen, actuator)
        if not self._acts_on(seen.target):
            return self._advise(seen, plan, in_place=in_place)
        return await (self._look_back(seen) if in_place else self._advance(seen, actuator, plan))

    async def _recall(self, seen: Seen) -> None:
        """What earlier rounds left, and what an operator has said since."""
        try:
            report = await self.api.get_target_status(seen.target.name)
        except NotFoundError:
            seen.kept = TargetMemory()
        else:
            seen.kept, seen.approval = report.memory or TargetMemory(), report.approval
        seen.memory = with_refusal_in_force(seen.kept, seen.target)

    async def _aim(self, seen: Seen, plan_id: str) -> PlanRecord:
        """Pursue a plan."""
        spec = seen.target.spec
        plan = await self.plans.get(plan_id)
        seen.plan_id, seen.planned = plan_id, planned_replicas(plan, spec)
        settings = wanted_settings(plan, spec)
        seen.wanted = raise_to_floor(
            planned=seen.planned,
            asked=seen.observation.asked,
            min_replicas=spec.min_replicas,
            keep_unplanned=settings.table is None,
        )
        seen.settings_digest = settings.digest
        seen.tellings = await self.settings.left(settings, spec.application, observation=seen.observation)
        return plan

    def _is_in_place(self, seen: Seen, actuator: Actuator) -> bool:
        return not seen.tellings and actuator.verify(wanted=seen.wanted, observation=seen.observation)

    def _advise(self, seen: Seen, plan: PlanRecord, *, in_place: bool) -> Outcome:
        """Nothing may be written: say at most what would be."""
        if in_place or self._only_looks(seen.target):
            return Phase.OBSERVED, seen.notes()
        check_fresh(plan, now=self.now(), max_age_s=self.plan_max_age_s)
        seen.note_digest()
        return Phase.RECOMMENDED, seen.notes()

    async def _look_back(self, seen: Seen) -> Outcome:
        """All is as planned.  If it is healthy too, this is the plan to come back to."""
        seen.memory = memory = arrived(seen.memory)
        plan_id, probe = seen.wanted_plan_id, seen.target.spec.health
        if memory.verified_plan_id == plan_id and memory.change is None:
            return Phase.APPLIED, seen.notes()
        if seen.observation.note is not None:
            return Phase.APPLIED, joined(seen.notes(), "not verified")
        if probe is not None:
            if memory.change is not None and self.now() < (due := judged_at(memory.change.moved_at, probe)):
                return Phase.APPLIED, joined(seen.notes(), f"judged by its health from {_moment(due)} on")
            judgement = await self._judge(probe, memory)
            if judgement.verdict is Verdict.WORSE and memory.verified_plan_id != plan_id:
                return self._refuse(seen, judgement)
            if judgement.verdict is not Verdict.GOOD:
                return Phase.APPLIED, joined(seen.notes(), f"not verified: {judgement.reason}")
        seen.memory = verified(memory, plan_id=plan_id)
        return Phase.APPLIED, seen.notes()

    async def _advance(self, seen: Seen, actuator: Actuator, plan: PlanRecord) -> Outcome:
        """Something differs: what stands between that and the next write."""
        target, now, notes = seen.target, self.now(), seen.notes()
        seen.memory = with_goal(seen.memory, planned=seen.planned, settings=seen.settings_digest, now=now)
        if (judgement := await self._judge_halfway(seen)) is not None:
            if judgement.verdict is Verdict.WORSE and seen.memory.verified_plan_id != plan.id:
                return self._refuse(seen, judgement)
            if judgement.verdict is not Verdict.GOOD:
                notes = joined(notes, judgement.reason)
        seen.note_digest()
        if seen.digest is not None:  # else there is only to be waited for what was asked before
            check_fresh(plan, now=now, max_age_s=self.plan_max_age_s)
        if (left_s := target.spec.settle_s - settled_s(seen.memory, now=now)) > 0.0:
            due = now + timedelta(seconds=left_s)
            return Phase.SETTLING, joined(notes, f"acted on from {_moment(due)} on if it stays so")
        free = not target.spec.require_approval or seen.digest is None or is_licensed(seen.memory, target)
        if not free and not _take_approval(seen):
            return Phase.AWAITING_APPROVAL, notes
        return await self._carry_out(seen, actuator, Phase.APPLYING, notes)

    async def _retreat(self, seen: Seen, actuator: Actuator) -> Outcome:
        """The wanted plan did harm: back to the last verified one, until the target or an operator says otherwise."""
        refusal, back_to = seen.memory.refused, seen.memory.verified_plan_id
        reason = refusal.reason if refusal is not None else None
        if back_to is not None:
            try:
                await self._aim(seen, back_to)
            except PlanUnusableError as error:  # the target asks for more than it did when that plan was good
                back_to, reason = None, joined(reason, f"no way back: {error}")
            else:
                if not self._is_in_place(seen, actuator):
                    return await self._carry_out(seen, actuator, Phase.ROLLING_BACK, joined(reason, seen.notes()))
        planned = seen.planned
        await self._aim(seen, seen.wanted_plan_id)
        seen.note_digest()
        if _take_approval(seen):
            return Phase.APPLYING, "an operator has approved another try"
        if back_to is None:
            return Phase.FAILED, joined(reason, NOWHERE_TO_GO if seen.memory.verified_plan_id is None else None)
        seen.plan_id, seen.planned = back_to, planned
        return Phase.ROLLED_BACK, reason

    def _refuse(self, seen: Seen, judgement: Judgement) -> Outcome:
        plan_id = seen.wanted_plan_id
        reason = one_line(f"health worsened after plan {plan_id}: {judgement.reason}")
        log.warning("plan_refused", target=seen.target.name, plan_id=plan_id, reason=reason)
        seen.memory = refused(seen.memory, seen.target, plan_id=plan_id, reason=reason, now=self.now())
        if seen.memory.verified_plan_id is None:
            return Phase.FAILED, joined(reason, NOWHERE_TO_GO)
        return Phase.ROLLING_BACK, reason

    async def _carry_out(self, seen: Seen, actuator: Actuator, phase: Phase, notes: str | None) -> Outcome:
        if await self._is_another(seen.target):
            return phase, joined(notes, "the target was changed a moment ago; nothing was written in this round")
        spec, now = seen.target.spec, self.now()
        if (opens_at := window_opens_at(seen.memory, spec, now=now)) is not None:
            notes = joined(notes, f"max_step_per_window is used up until {_moment(opens_at)}")
        left = window_left(seen.memory, spec, now=now)
        steps = actuator.plan_changes(wanted=seen.wanted, observation=seen.observation, max_step=left) if left else ()
        steps = without_losses(steps, tellings=seen.tellings)
        told = due(seen.tellings, wanted=seen.wanted, observation=seen.observation)
        # Replicas that come first: they must not wait for a setting that cannot be told.
        writes = [partial(self._take, seen, actuator, step) for step in steps if step.rises]
        writes += [partial(self._tell, seen, telling) for telling in told]
        writes += [partial(self._take, seen, actuator, step) for step in steps if not step.rises]
        if writes and (freeze := (await self.api.get_freeze()).document).frozen:
            return Phase.FROZEN, freeze.reason or notes
        seen.steps, seen.told = steps, told
        if self.dry_run or not writes:
            return phase, notes
        await self._write_down(seen, phase, notes)
        for write in writes:
            if (freeze := (await self.api.get_freeze()).document).frozen:  # it may come between two writes
                return Phase.FROZEN, freeze.reason or notes
            if await self._is_another(seen.target):
                return phase, joined(notes, "the target was changed a moment ago; nothing more was written")
            await write()
        return phase, notes

    async def _is_another(self, target: Target) -> bool:
        """Read as late as possible: a target switched to observe holds from this moment."""
        return (await self.api.get_target(target.name)).document != target

    async def _write_down(self, seen: Seen, phase: Phase, notes: str | None) -> None:
        """Have the API keep what is about to be done, so that whoever comes after a crash counts it."""
        spec, now = seen.target.spec, self.now()
        seen.memory = spend(seen.memory, spec, replicas=sum(step.size for step in seen.steps), now=now)
        if spec.health is not None and phase is not Phase.ROLLING_BACK:
            before = (await self.health(spec.health)).readings if seen.memory.change is None else None
            seen.memory = began(seen.memory, plan_id=seen.wanted_plan_id, before=before, now=now)
        if seen.memory != seen.kept:
            async with self.leadership.acting():
                await self.api.report_target_status(seen.target.name, self._report(seen, phase, notes))
            seen.kept = seen.memory

    async def _take(self, seen: Seen, actuator: Actuator, step: Step) -> None:
        async with self.leadership.acting():
            await actuator.apply(step)
        self.metrics.wrote(target=seen.target.name, kind="scale")
        log.info(
            "scale_asked",
            target=seen.target.name,
            plan_id=seen.plan_id,
            gpu=step.gpu,
            replicas_before=step.replicas_before,
            replicas_after=step.replicas_after,
        )

    async def _tell(self, seen: Seen, telling: Telling) -> None:
        async with self.leadership.acting():
            await self.settings.tell(seen.target.spec.application, telling)
        self.metrics.wrote(target=seen.target.name, kind=telling.key)
        log.info(
            "setting_told",
            target=seen.target.name,
            plan_id=seen.plan_id,
            deployment=telling.deployment,
            key=telling.key,
            before=telling.now,
            after=telling.planned,
        )

    async def _judge_halfway(self, seen: Seen) -> Judgement | None:
        """What health says of the writes so far; None when it is too early, or nobody asks."""
        probe, change = seen.target.spec.health, seen.memory.change
        if probe is None or change is None or change.plan_id != seen.wanted_plan_id:
            return None
        return await self._judge(probe, seen.memory) if self.now() >= judged_at(change.began_at, probe) else None

    async def _judge(self, probe: HealthProbe, memory: TargetMemory) -> Judgement:
        before = memory.change.before if memory.change is not None else None
        return judge(probe, health=await self.health(probe), before=before)

    def _acts_on(self, target: Target) -> bool:
        return target.spec.mode is Mode.APPLY and not self.observe_only

    def _only_looks(self, target: Target) -> bool:
        return self.observe_only or target.spec.mode is Mode.OBSERVE

    def _report(self, seen: Seen, phase: Phase, message: str | None) -> TargetStatus:
        with_changes = self.dry_run or not self._only_looks(seen.target)
        return seen.report(phase=phase, message=message, now=self.now(), with_changes=with_changes)


def _take_approval(seen: Seen) -> bool:
    """Whether an operator has approved just this, and it has not been used up; using it is remembered."""
    if (approval := _approval_of(seen)) is None:
        return False
    seen.memory = licensed(seen.memory, seen.target, approval_number=approval.number)
    return True


def _approval_of(seen: Seen) -> Approval | None:
    """An operator's, of just what stands ready, that has not been used up."""
    approval = seen.approval
    if approval is None or seen.digest is None or approval.number <= seen.memory.approvals_used:
        return None
    is_of_this = (approval.digest, approval.plan_id) == (seen.digest, seen.target.spec.plan_id)
    return approval if is_of_this else None


def _moment(at: datetime) -> str:
    return f"{at:%H:%M:%S} UTC"
