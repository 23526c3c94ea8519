"""The state that one reconcile leaves to the next; the API stores it with the target.  Pure.

The state is stored before the action that it describes.  A controller that dies in between has counted a change that it
did not make; it never makes a change that it did not count.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from api.schemas.target_state import (
    SPENT_MAX,
    ApprovalGrant,
    Goal,
    PendingChange,
    Readings,
    Refusal,
    Spent,
    TargetState,
)
from api.schemas.targets import Target, TargetSpec

# Changes close to each other are stored as one, at the time of the latest, so that none leaves the window too early.
_PARTS_OF_WINDOW = SPENT_MAX // 2


def with_goal(
    state: TargetState, *, planned: Mapping[str, int], settings: str | None = None, now: datetime
) -> TargetState:
    """Record a difference from this plan; its start time stays while the planned state is the same."""
    if state.goal is not None and (state.goal.planned, state.goal.settings) == (planned, settings):
        return state
    return state.model_copy(update={"goal": Goal(planned=dict(planned), settings=settings, since=now)})


def without_goal(state: TargetState) -> TargetState:
    if state.goal is None and state.approval_grant is None:
        return state
    return state.model_copy(update={"goal": None, "approval_grant": None})


def settled_s(state: TargetState, *, now: datetime) -> float:
    """Return for how long the planned state is the same and not in place.  A clock set back counts as no time."""
    return max(0.0, (now - state.goal.since).total_seconds()) if state.goal is not None else 0.0


def window_left(state: TargetState, spec: TargetSpec, *, now: datetime) -> int:
    """Return the replicas that may change now.  Future times count as now, or a clock set back opens the window."""
    if spec.max_step_per_window is None:
        return spec.max_step
    spent = sum(entry.replicas for entry in _recent(state, spec, now))
    return max(0, min(spec.max_step, spec.max_step_per_window - spent))


def window_opens_at(state: TargetState, spec: TargetSpec, *, now: datetime) -> datetime | None:
    """Return when the next replica may change; None when one may now."""
    if window_left(state, spec, now=now) > 0:
        return None
    return min(entry.at for entry in _recent(state, spec, now)) + timedelta(seconds=spec.window_s)


def with_spent(state: TargetState, spec: TargetSpec, *, replicas: int, now: datetime) -> TargetState:
    """Record that these replicas are about to change."""
    if spec.max_step_per_window is None:
        return state.model_copy(update={"spent": ()}) if state.spent else state
    if replicas == 0:
        return state
    kept = _recent(state, spec, now)
    part_s = spec.window_s / _PARTS_OF_WINDOW
    if kept and (_part(kept[-1].at, part_s) == _part(now, part_s) or len(kept) == SPENT_MAX):
        last = kept.pop()
        kept.append(Spent(at=max(last.at, now), replicas=last.replicas + replicas))
    else:
        kept.append(Spent(at=now, replicas=replicas))
    return state.model_copy(update={"spent": tuple(kept)})


def with_change_begun(state: TargetState, *, plan_id: str, before: Readings | None, now: datetime) -> TargetState:
    """Record a coming write towards a plan.  `before` counts where no earlier change awaits its health check."""
    pending = state.change
    if pending is None:
        change = PendingChange(plan_id=plan_id, began_at=now, moved_at=now, before=before or Readings())
    elif pending.plan_id == plan_id:
        change = pending.model_copy(update={"moved_at": now})
    else:
        change = PendingChange(plan_id=plan_id, began_at=now, moved_at=now, before=pending.before)
    return state.model_copy(update={"change": change})


def with_verified(state: TargetState, *, plan_id: str) -> TargetState:
    if state.verified_plan_id == plan_id and state.change is None:
        return state
    return state.model_copy(update={"verified_plan_id": plan_id, "change": None})


def with_refusal(state: TargetState, target: Target, *, plan_id: str, reason: str, now: datetime) -> TargetState:
    """Record that health worsened after this plan, which is not applied any more."""
    refusal = Refusal(plan_id=plan_id, target_version=target.version, at=now, reason=reason)
    return state.model_copy(update={"refused": refusal, "change": None, "approval_grant": None, "goal": None})


def with_refusal_in_force(state: TargetState, target: Target) -> TargetState:
    """Drop a refusal of another plan or of an earlier version of the target."""
    refusal, spec = state.refused, target.spec
    if refusal is None or (refusal.plan_id, refusal.target_version) == (spec.plan_id, target.version):
        return state
    return state.model_copy(update={"refused": None})


def with_grant(state: TargetState, target: Target, *, approval_number: int) -> TargetState:
    """Record the use of an approval, which also ends a refusal."""
    grant = ApprovalGrant(plan_id=target.spec.plan_id or "", target_version=target.version)
    return state.model_copy(update={"approval_grant": grant, "approvals_used": approval_number, "refused": None})


def has_grant(state: TargetState, target: Target) -> bool:
    grant = state.approval_grant
    return grant is not None and (grant.plan_id, grant.target_version) == (target.spec.plan_id, target.version)


def with_approved_maps(state: TargetState, *, digest: str, approval_number: int) -> TargetState:
    """Record the use of an approval of expert maps; it holds until the target changes."""
    return state.model_copy(update={"approved_maps": digest, "approvals_used": approval_number})


def _recent(state: TargetState, spec: TargetSpec, now: datetime) -> list[Spent]:
    since = now - timedelta(seconds=spec.window_s)
    return sorted((entry for entry in state.spent if entry.at > since), key=lambda entry: entry.at)


def _part(at: datetime, part_s: float) -> int:
    return int(at.timestamp() / part_s)
