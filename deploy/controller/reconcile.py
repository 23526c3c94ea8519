"""One reconcile of one target: observe, diff, order, apply, report.  The next observation verifies what was applied.

The reconciler keeps only a cache of immutable plans, so it may be interrupted anywhere.  The state that one reconcile
leaves to the next (`deploy.controller.target_state`) is stored by the API, before the action that it describes.
docs/explanation/runtime/controller.md draws the state machine.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import httpx
import structlog

from api.client import AsyncClient, NotFoundError
from api.schemas.plans import PlanRecord
from api.schemas.probes import HealthProbe
from api.schemas.target_state import Approval, TargetState
from api.schemas.targets import Mode, Phase, Target, TargetStatus
from api.tracing import span
from deploy.actuators.base import Actuator, ConfigWrite, Drain, Step
from deploy.actuators.registry import ActuatorFactory
from deploy.common.clock import Clock
from deploy.common.errors import PlanUnusableError
from deploy.common.leader_election import Leadership
from deploy.common.text import joined, one_line
from deploy.controller.config_changes import ConfigChange, ready_changes, without_blocked_decreases
from deploy.controller.health_check import HealthCheck, HealthOutcome, check_due_at, check_health
from deploy.controller.metrics import ControllerMetrics
from deploy.controller.plan_reader import PlanReader, check_fresh, planned_replicas
from deploy.controller.prometheus_health import HealthReader
from deploy.controller.reconcile_state import ReconcileState
from deploy.controller.rollout import drained_first, plan_changes, raise_to_floor, stale_drains, verify
from deploy.controller.serve_settings import planned_settings, settings_changes
from deploy.controller.target_state import (
    has_grant,
    settled_s,
    window_left,
    window_opens_at,
    with_approved_maps,
    with_change_begun,
    with_goal,
    with_grant,
    with_refusal,
    with_refusal_in_force,
    with_spent,
    with_verified,
    without_goal,
)
from deploy.expert_rollout.controller import ExpertMaps
from fleet.errors import FleetwrightError

log = structlog.get_logger()

NO_ROLLBACK = "no plan was verified before, so nothing more is changed"

Outcome = tuple[Phase, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    period_s: float = 5.0
    concurrency: int = 32  # targets at once
    listing_timeout_s: float = 60.0  # for the API to list all targets
    target_timeout_s: float = 30.0  # for one reconcile of one target
    max_backoff_s: float = 60.0
    # Demand repeats by the week: an older plan was made for another demand.
    plan_max_age_s: float = 7 * 86_400.0
    observe_only: bool = False  # write to no target, whatever its mode


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """Brings targets to their plans, one reconcile at a time."""

    api: AsyncClient
    actuators: ActuatorFactory
    http: httpx.AsyncClient  # for status endpoints of applications
    health: HealthReader
    plans: PlanReader
    metrics: ControllerMetrics
    leadership: Leadership
    settings: ControllerSettings
    clock: Clock
    dry_run: bool = False  # do everything but the writes and the reports
    expert_maps: ExpertMaps = field(init=False)

    def __post_init__(self) -> None:
        self.expert_maps = ExpertMaps(
            api=self.api,
            actuators=self.actuators,
            http=self.http,
            leadership=self.leadership,
            wrote=self.metrics.wrote,
        )

    async def reconcile(self, target: Target) -> tuple[TargetStatus, ReconcileState]:
        """Make the changes that are allowed now.  Return the report, and the state with the writes made or due."""
        self.metrics.start_counters(target.name)
        state = ReconcileState(target)
        try:
            async with asyncio.timeout(self.settings.target_timeout_s):
                phase, message = await self._roll_out_maps(state, *await self._observe(state))
        except FleetwrightError as error:
            phase, message = Phase.FAILED, str(error)
        except TimeoutError:
            phase, message = Phase.FAILED, f"not done within {self.settings.target_timeout_s:g} s"
        if phase is Phase.FAILED:
            log.warning("target_failed", target=target.name, plan_id=target.spec.plan_id, reason=message)
        return self._report(state, phase, message), state

    async def _roll_out_maps(self, state: ReconcileState, phase: Phase, message: str | None) -> Outcome:
        outcome = await self.expert_maps.advance(
            state.target,
            observation=state.observation,
            phase=phase,
            message=message,
            observe_only=self._only_observes(state.target),
            may_write=self._applies(state.target) and not self.dry_run,
            approved=state.target_state.approved_maps,
        )
        state.expert_maps = outcome.maps
        if outcome.digest is not None:
            state.digest = outcome.digest
            if self._applies(state.target) and (approval := _approval_of(state)) is not None:
                # Maps are written from the next reconcile on, when the API has stored that the approval is used.
                state.target_state = with_approved_maps(
                    state.target_state, digest=outcome.digest, approval_number=approval.number
                )
        return outcome.phase, outcome.message

    async def _observe(self, state: ReconcileState) -> Outcome:
        spec = state.target.spec
        actuator = self.actuators(spec.application)
        with span("observe", fleetwright__application=spec.application.kind):
            state.observation = await actuator.observe()
        if self._applies(state.target) and (spec.plan_id is not None or spec.require_approval):
            await self._load_state(state)
        if spec.plan_id is None:
            return Phase.OBSERVED, joined(state.observation.note, state.observation.warning)
        if state.target_state.refused is not None:
            return await self._roll_back(state, actuator)
        plan = await self._diff(state, spec.plan_id)
        in_place = _is_in_place(state)
        if not self._applies(state.target):
            return self._recommend(state, plan, in_place=in_place)
        return await (self._verify(state) if in_place else self._advance(state, actuator, plan))

    async def _load_state(self, state: ReconcileState) -> None:
        try:
            report = await self.api.get_target_status(state.target.name)
        except NotFoundError:
            state.stored = TargetState()
        else:
            state.stored, state.approval = report.state or TargetState(), report.approval
        state.target_state = with_refusal_in_force(state.stored, state.target)

    async def _diff(self, state: ReconcileState, plan_id: str) -> PlanRecord:
        spec = state.target.spec
        plan = await self.plans.get(plan_id)
        state.plan_id, state.planned = plan_id, planned_replicas(plan, spec)
        settings = planned_settings(plan, spec)
        state.wanted = raise_to_floor(
            planned=state.planned,
            requested=state.observation.requested,
            min_replicas=spec.min_replicas,
            keep_unplanned=settings.table is None,
        )
        state.settings_digest = settings.digest
        state.config_changes = await settings_changes(
            settings, spec.application, observation=state.observation, http=self.http
        )
        return plan

    def _recommend(self, state: ReconcileState, plan: PlanRecord, *, in_place: bool) -> Outcome:
        """Report the change set and the counts to publish at most, because the mode allows no write."""
        if self._only_observes(state.target):
            return Phase.OBSERVED, state.notes()
        if not in_place:
            check_fresh(plan, now=self.clock.now(), max_age_s=self.settings.plan_max_age_s)
            state.compute_digest()
        state.publishes = True
        return Phase.OBSERVED if in_place else Phase.RECOMMENDED, state.notes()

    async def _verify(self, state: ReconcileState) -> Outcome:
        """The plan is in place.  If the target is healthy too, this is the plan to roll back to later."""
        state.target_state = target_state = without_goal(state.target_state)
        plan_id, probe = state.target_plan_id, state.target.spec.health
        if target_state.verified_plan_id == plan_id and target_state.change is None:
            return Phase.APPLIED, state.notes()
        if state.observation.note is not None:
            return Phase.APPLIED, joined(state.notes(), "not verified")
        if probe is not None:
            if target_state.change is not None and self.clock.now() < (
                due := check_due_at(target_state.change.moved_at, probe)
            ):
                return Phase.APPLIED, joined(state.notes(), f"health check at {_time(due)}")
            check = await self._check_health(probe, target_state)
            if check.outcome is HealthOutcome.WORSE and target_state.verified_plan_id != plan_id:
                return self._refuse_plan(state, check)
            if check.outcome is not HealthOutcome.GOOD:
                return Phase.APPLIED, joined(state.notes(), f"not verified: {check.reason}")
        state.target_state = with_verified(target_state, plan_id=plan_id)
        return Phase.APPLIED, state.notes()

    async def _advance(self, state: ReconcileState, actuator: Actuator, plan: PlanRecord) -> Outcome:
        """Something differs: check the conditions of the next write."""
        target, now, notes = state.target, self.clock.now(), state.notes()
        state.target_state = with_goal(
            state.target_state, planned=state.planned, settings=state.settings_digest, now=now
        )
        if (check := await self._check_health_midway(state)) is not None:
            if check.outcome is HealthOutcome.WORSE and state.target_state.verified_plan_id != plan.id:
                return self._refuse_plan(state, check)
            if check.outcome is not HealthOutcome.GOOD:
                notes = joined(notes, check.reason)
        state.compute_digest()
        if state.digest is not None:  # otherwise nothing is written, and the plan's age does not matter
            check_fresh(plan, now=now, max_age_s=self.settings.plan_max_age_s)
        if (left_s := target.spec.settle_s - settled_s(state.target_state, now=now)) > 0.0:
            due = now + timedelta(seconds=left_s)
            return Phase.SETTLING, joined(notes, f"the first write is allowed at {_time(due)} if nothing changes")
        free = not target.spec.require_approval or state.digest is None or has_grant(state.target_state, target)
        if not free and not _use_approval(state):
            return Phase.AWAITING_APPROVAL, notes
        return await self._apply(state, actuator, Phase.APPLYING, notes)

    async def _roll_back(self, state: ReconcileState, actuator: Actuator) -> Outcome:
        """The target's plan did harm: return to the last verified one until the target changes or an approval comes."""
        refusal, back_to = state.target_state.refused, state.target_state.verified_plan_id
        reason = refusal.reason if refusal is not None else None
        if back_to is not None:
            try:
                await self._diff(state, back_to)
            except PlanUnusableError as error:  # the target was changed since that plan was verified
                back_to, reason = None, joined(reason, f"rollback is not possible: {error}")
            else:
                if not _is_in_place(state):
                    notes = joined(reason, state.notes())
                    return await self._apply(state, actuator, Phase.ROLLING_BACK, notes)
        planned = state.planned
        await self._diff(state, state.target_plan_id)
        state.compute_digest()
        if _use_approval(state):
            return Phase.APPLYING, "an operator has approved another attempt"
        if back_to is None:
            return Phase.FAILED, joined(reason, NO_ROLLBACK if state.target_state.verified_plan_id is None else None)
        state.plan_id, state.planned = back_to, planned
        return Phase.ROLLED_BACK, reason

    def _refuse_plan(self, state: ReconcileState, check: HealthCheck) -> Outcome:
        plan_id = state.target_plan_id
        reason = one_line(f"health worsened after plan {plan_id}: {check.reason}")
        log.warning("plan_refused", target=state.target.name, plan_id=plan_id, reason=reason)
        state.target_state = with_refusal(
            state.target_state, state.target, plan_id=plan_id, reason=reason, now=self.clock.now()
        )
        if state.target_state.verified_plan_id is None:
            return Phase.FAILED, joined(reason, NO_ROLLBACK)
        return Phase.ROLLING_BACK, reason

    async def _apply(self, state: ReconcileState, actuator: Actuator, phase: Phase, notes: str | None) -> Outcome:
        if await self._has_changed(state.target):
            return phase, joined(notes, "the target changed meanwhile; nothing was written in this reconcile")
        spec, now = state.target.spec, self.clock.now()
        if (opens_at := window_opens_at(state.target_state, spec, now=now)) is not None:
            notes = joined(notes, f"max_step_per_window is used up until {_time(opens_at)}")
        left = window_left(state.target_state, spec, now=now)
        steps = plan_changes(wanted=state.wanted, observation=state.observation, max_step=left) if left else ()
        steps = without_blocked_decreases(steps, changes=state.config_changes)
        steps, drains = drained_first(steps, wanted=state.wanted, observation=state.observation)
        configs = ready_changes(state.config_changes, wanted=state.wanted, observation=state.observation)
        # Increases come first: they must not wait for a configuration that cannot be written.
        writes = [partial(self._take_step, state, actuator, step) for step in steps if step.is_increase]
        writes += [partial(self._drain, state, actuator, drain) for drain in drains]
        writes += [partial(self._write_config, state, actuator, change) for change in configs]
        writes += [partial(self._take_step, state, actuator, step) for step in steps if not step.is_increase]
        if writes and (freeze := (await self.api.get_freeze()).document).frozen:
            return Phase.FROZEN, freeze.reason or notes
        state.steps, state.config_writes, state.drains = steps, configs, drains
        if self.dry_run or not writes:
            return phase, notes
        await self._store_state(state, phase, notes)
        for write in writes:
            if (freeze := (await self.api.get_freeze()).document).frozen:  # it may be set between two writes
                return Phase.FROZEN, freeze.reason or notes
            if await self._has_changed(state.target):
                return phase, joined(notes, "the target changed meanwhile; nothing more was written")
            await write()
        return phase, notes

    async def _has_changed(self, target: Target) -> bool:
        """Read the target as late as possible: a target that is set to observe gets no write from this moment on."""
        return (await self.api.get_target(target.name)).document != target

    async def _store_state(self, state: ReconcileState, phase: Phase, notes: str | None) -> None:
        """Store the next change, so that a controller that starts after a crash counts it."""
        spec, now = state.target.spec, self.clock.now()
        state.target_state = with_spent(
            state.target_state, spec, replicas=sum(step.size for step in state.steps), now=now
        )
        if spec.health is not None and phase is not Phase.ROLLING_BACK:
            before = (await self.health(spec.health)).readings if state.target_state.change is None else None
            state.target_state = with_change_begun(
                state.target_state, plan_id=state.target_plan_id, before=before, now=now
            )
        if state.target_state != state.stored:
            async with self.leadership.acting():
                await self.api.report_target_status(
                    state.target.name, self._report(state, phase, notes), held=self.leadership.held
                )
            state.stored = state.target_state

    async def _take_step(self, state: ReconcileState, actuator: Actuator, step: Step) -> None:
        async with self.leadership.acting():
            with span("apply", fleetwright__part=step.part, fleetwright__replicas=step.replicas_after):
                await actuator.apply(step)
        self.metrics.wrote(target=state.target.name, kind="scale")
        log.info(
            "replicas_requested",
            target=state.target.name,
            plan_id=state.plan_id,
            gpu=step.part,
            replicas_before=step.replicas_before,
            replicas_after=step.replicas_after,
        )

    async def _drain(self, state: ReconcileState, actuator: Actuator, drain: Drain) -> None:
        async with self.leadership.acting():
            with span("apply", fleetwright__part=drain.part, fleetwright__keep=drain.keep):
                await actuator.apply(drain)
        self.metrics.wrote(target=state.target.name, kind="drain")
        log.info("replicas_marked_to_stop", target=state.target.name, gpu=drain.part, keep=drain.keep)

    async def _write_config(self, state: ReconcileState, actuator: Actuator, change: ConfigChange) -> None:
        write = ConfigWrite(deployment=change.deployment, key=change.key, value=change.value)
        async with self.leadership.acting():
            with span("apply", fleetwright__deployment=write.deployment, fleetwright__key=write.key):
                await actuator.apply(write)
        self.metrics.wrote(target=state.target.name, kind=change.key)
        log.info(
            "config_written",
            target=state.target.name,
            plan_id=state.plan_id,
            deployment=change.deployment,
            key=change.key,
            before=change.current,
            after=change.planned,
        )

    async def _check_health_midway(self, state: ReconcileState) -> HealthCheck | None:
        """Check the health during a change; None where it is too early, or the target has no probe."""
        probe, change = state.target.spec.health, state.target_state.change
        if probe is None or change is None or change.plan_id != state.target_plan_id:
            return None
        if self.clock.now() < check_due_at(change.began_at, probe):
            return None
        return await self._check_health(probe, state.target_state)

    async def _check_health(self, probe: HealthProbe, target_state: TargetState) -> HealthCheck:
        before = target_state.change.before if target_state.change is not None else None
        return check_health(probe, health=await self.health(probe), before=before)

    def _applies(self, target: Target) -> bool:
        return target.spec.mode is Mode.APPLY and not self.settings.observe_only

    def _only_observes(self, target: Target) -> bool:
        return self.settings.observe_only or target.spec.mode is Mode.OBSERVE

    def _report(self, state: ReconcileState, phase: Phase, message: str | None) -> TargetStatus:
        with_changes = self.dry_run or not self._only_observes(state.target)
        return state.report(phase=phase, message=message, now=self.clock.now(), with_changes=with_changes)


def _is_in_place(state: ReconcileState) -> bool:
    wanted, observation = state.wanted, state.observation
    settled = not state.config_changes and not stale_drains(wanted=wanted, observation=observation)
    return settled and verify(wanted=wanted, observation=observation)


def _use_approval(state: ReconcileState) -> bool:
    """Return whether an operator has approved this digest and the approval is not used; record its use."""
    if (approval := _approval_of(state)) is None:
        return False
    state.target_state = with_grant(state.target_state, state.target, approval_number=approval.number)
    return True


def _approval_of(state: ReconcileState) -> Approval | None:
    """Return an unused approval of exactly this digest and plan."""
    approval = state.approval
    if approval is None or state.digest is None or approval.number <= state.target_state.approvals_used:
        return None
    matches = (approval.digest, approval.plan_id) == (state.digest, state.target.spec.plan_id)
    return approval if matches else None


def _time(at: datetime) -> str:
    return f"{at:%H:%M:%S} UTC"
