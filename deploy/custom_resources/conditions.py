"""The conditions of the custom resources.  Pure.

A condition's `lastTransitionTime` changes with its status only, as in Kubernetes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from api.schemas.plans import PlanRecord
from api.schemas.targets import Freeze, Phase, TargetStatus
from deploy.common.text import one_line


class Kind(StrEnum):
    READY = "Ready"
    FEASIBLE = "Feasible"
    APPLIED = "Applied"
    SLO_MET = "SLOMet"
    POWER_WITHIN_BUDGET = "PowerWithinBudget"
    FROZEN = "Frozen"


class Status(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


REASONS: Final = {phase: "".join(part.title() for part in phase.value.split("_")) for phase in Phase}


@dataclass(frozen=True, slots=True)
class Condition:
    kind: Kind
    status: Status
    reason: str
    message: str

    @property
    def is_true(self) -> bool:
        return self.status is Status.TRUE


def feasible(plan: PlanRecord | None) -> Condition:
    if plan is None:
        return Condition(Kind.FEASIBLE, Status.UNKNOWN, "NoPlan", "there is no plan yet")
    found = plan.plan
    if found.status.has_mix:
        return Condition(Kind.FEASIBLE, Status.TRUE, "PlanHasMix", f"plan {plan.id}: {found.status.value}")
    why = found.explanation[0] if found.explanation else found.status.value
    return Condition(Kind.FEASIBLE, Status.FALSE, "Infeasible", f"plan {plan.id}: {why}")


def power_within_budget(plan: PlanRecord | None) -> Condition:
    """Compare the planned watts with the limits of the plan's request."""
    if plan is None or not plan.plan.status.has_mix:
        return Condition(Kind.POWER_WITHIN_BUDGET, Status.UNKNOWN, "NoPlan", "there is no feasible plan yet")
    domains = plan.plan.power_domains
    if not domains:
        return Condition(
            Kind.POWER_WITHIN_BUDGET, Status.UNKNOWN, "NoLimit", "the request of the plan has no power_domains"
        )
    used = ", ".join(f"{each.name} {each.planned_w:,.0f} of {each.limit_w:,.0f} W" for each in domains)
    if any(each.planned_w > each.limit_w for each in domains):
        return Condition(Kind.POWER_WITHIN_BUDGET, Status.FALSE, "AboveLimit", used)
    return Condition(Kind.POWER_WITHIN_BUDGET, Status.TRUE, "WithinLimits", used)


def applied(status: TargetStatus | None, plan_id: str | None) -> Condition:
    if status is None:
        return Condition(
            Kind.APPLIED, Status.UNKNOWN, "NotReported", "the controller has not reported on the target yet"
        )
    if plan_id is None:
        return Condition(Kind.APPLIED, Status.UNKNOWN, "NoPlan", "the target has no plan")
    done = status.phase is Phase.APPLIED and status.plan_id == plan_id
    return Condition(
        Kind.APPLIED,
        Status.TRUE if done else Status.FALSE,
        REASONS[status.phase],
        status.message or f"plan {plan_id}: {status.phase.value}",
    )


def slo_met(status: TargetStatus | None, plan_id: str | None) -> Condition:
    """Report the health check after the plan; a target without one has no answer."""
    state = status.state if status is not None else None
    if state is None or plan_id is None:
        return Condition(Kind.SLO_MET, Status.UNKNOWN, "NotChecked", "no plan of the target has been checked yet")
    if state.refused is not None and state.refused.plan_id == plan_id:
        return Condition(Kind.SLO_MET, Status.FALSE, "HealthWorsened", state.refused.reason)
    if state.verified_plan_id == plan_id:
        return Condition(Kind.SLO_MET, Status.TRUE, "HealthVerified", f"plan {plan_id} is in place and healthy")
    return Condition(Kind.SLO_MET, Status.UNKNOWN, "NotChecked", f"plan {plan_id} has not been checked yet")


def planned_slo_met(plan: PlanRecord | None) -> Condition:
    """Report the SLO of a plan: every mix of the planner meets it, by its performance model."""
    found = feasible(plan)
    reason = "PlannedWithinSlo" if found.is_true else found.reason
    return Condition(Kind.SLO_MET, found.status, reason, found.message)


def frozen(freeze: Freeze) -> Condition:
    if not freeze.frozen:
        return Condition(Kind.FROZEN, Status.FALSE, "NotFrozen", "the fleet is not frozen")
    return Condition(Kind.FROZEN, Status.TRUE, "Frozen", freeze.reason or "the fleet is frozen")


def written(
    conditions: Iterable[Condition], before: Sequence[Mapping[str, Any]], *, generation: int, now: datetime
) -> list[dict[str, Any]]:
    """Return the conditions as the cluster stores them."""
    known = {each.get("type"): each for each in before}
    found = []
    for each in conditions:
        earlier = known.get(each.kind.value, {})
        same = earlier.get("status") == each.status.value and "lastTransitionTime" in earlier
        found.append(
            {
                "type": each.kind.value,
                "status": each.status.value,
                "observedGeneration": generation,
                "reason": each.reason,
                "message": one_line(each.message),
                "lastTransitionTime": earlier["lastTransitionTime"]
                if same
                else now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )
    return found
