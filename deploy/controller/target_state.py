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
    TargetMemory,
)
from api.schemas.targets import Target, TargetSpec

# Changes close to each other are stored as one, at the time of the latest, so that none leaves the window too early.
_PARTS_OF_WINDOW = SPENT_MAX // 2


def with_goal(
    memory: TargetMemory, *, planned: Mapping[str, int], settings: str | None = None, now: datetime
) -> TargetMemory:
    """Record a difference from this plan; its start time stays while the planned state is the same."""
    if memory.goal is not None and (memory.goal.planned, memory.goal.settings) == (planned, settings):
        return memory
    return memory.model_copy(update={"goal": Goal(planned=dict(planned), settings=settings, since=now)})


def without_goal(memory: TargetMemory) -> TargetMemory:
    if memory.goal is None and memory.licence is None:
        return memory
    return memory.model_copy(update={"goal": None, "licence": None})


def settled_s(memory: TargetMemory, *, now: datetime) -> float:
    """Return for how long the planned state is the same and not in place.  A clock set back counts as no time."""
    return max(0.0, (now - memory.goal.since).total_seconds()) if memory.goal is not None else 0.0


def window_left(memory: TargetMemory, spec: TargetSpec, *, now: datetime) -> int:
    """Return the replicas that may change now.  Future times count as now, or a clock set back opens the window."""
    if spec.max_step_per_window is None:
        return spec.max_step
    spent = sum(entry.replicas for entry in _recent(memory, spec, now))
    return max(0, min(spec.max_step, spec.max_step_per_window - spent))


def window_opens_at(memory: TargetMemory, spec: TargetSpec, *, now: datetime) -> datetime | None:
    """Return when the next replica may change; None when one may now."""
    if window_left(memory, spec, now=now) > 0:
        return None
    return min(entry.at for entry in _recent(memory, spec, now)) + timedelta(seconds=spec.window_s)


def with_spent(memory: TargetMemory, spec: TargetSpec, *, replicas: int, now: datetime) -> TargetMemory:
    """Record that these replicas are about to change."""
    if spec.max_step_per_window is None:
        return memory.model_copy(update={"spent": ()}) if memory.spent else memory
    if replicas == 0:
        return memory
    kept = _recent(memory, spec, now)
    part_s = spec.window_s / _PARTS_OF_WINDOW
    if kept and (_part(kept[-1].at, part_s) == _part(now, part_s) or len(kept) == SPENT_MAX):
        last = kept.pop()
        kept.append(Spent(at=max(last.at, now), replicas=last.replicas + replicas))
    else:
        kept.append(Spent(at=now, replicas=replicas))
    return memory.model_copy(update={"spent": tuple(kept)})


def with_change_begun(memory: TargetMemory, *, plan_id: str, before: Readings | None, now: datetime) -> TargetMemory:
    """Record a coming write towards a plan.  `before` counts where no earlier change awaits its health check."""
    pending = memory.change
    if pending is None:
        change = PendingChange(plan_id=plan_id, began_at=now, moved_at=now, before=before or Readings())
    elif pending.plan_id == plan_id:
        change = pending.model_copy(update={"moved_at": now})
    else:
        change = PendingChange(plan_id=plan_id, began_at=now, moved_at=now, before=pending.before)
    return memory.model_copy(update={"change": change})


def with_verified(memory: TargetMemory, *, plan_id: str) -> TargetMemory:
    if memory.verified_plan_id == plan_id and memory.change is None:
        return memory
    return memory.model_copy(update={"verified_plan_id": plan_id, "change": None})


def with_refusal(memory: TargetMemory, target: Target, *, plan_id: str, reason: str, now: datetime) -> TargetMemory:
    """Record that health worsened after this plan, which is not applied any more."""
    refusal = Refusal(plan_id=plan_id, target_version=target.version, at=now, reason=reason)
    return memory.model_copy(update={"refused": refusal, "change": None, "licence": None, "goal": None})


def with_refusal_in_force(memory: TargetMemory, target: Target) -> TargetMemory:
    """Drop a refusal of another plan or of an earlier version of the target."""
    refusal, spec = memory.refused, target.spec
    if refusal is None or (refusal.plan_id, refusal.target_version) == (spec.plan_id, target.version):
        return memory
    return memory.model_copy(update={"refused": None})


def with_grant(memory: TargetMemory, target: Target, *, approval_number: int) -> TargetMemory:
    """Record the use of an approval, which also ends a refusal."""
    grant = ApprovalGrant(plan_id=target.spec.plan_id or "", target_version=target.version)
    return memory.model_copy(update={"licence": grant, "approvals_used": approval_number, "refused": None})


def has_grant(memory: TargetMemory, target: Target) -> bool:
    grant = memory.licence
    return grant is not None and (grant.plan_id, grant.target_version) == (target.spec.plan_id, target.version)


def with_approved_maps(memory: TargetMemory, *, digest: str, approval_number: int) -> TargetMemory:
    """Record the use of an approval of expert maps; it holds until the target changes."""
    return memory.model_copy(update={"approved_maps": digest, "approvals_used": approval_number})


def _recent(memory: TargetMemory, spec: TargetSpec, now: datetime) -> list[Spent]:
    since = now - timedelta(seconds=spec.window_s)
    return sorted((entry for entry in memory.spent if entry.at > since), key=lambda entry: entry.at)


def _part(at: datetime, part_s: float) -> int:
    return int(at.timestamp() / part_s)
