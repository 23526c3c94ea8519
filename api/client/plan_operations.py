"""Describes the operations on stored plans as `Call`s."""

from dataclasses import replace
from typing import Final

from api.client.calls import Call, as_type, path_of, posting, reading
from api.schemas.plans import ExplanationRequest, PlanExplanation, PlanReplayRequest, StoredPlanReplay
from planner.comparison import PlanComparison

COMPARING_S: Final = 60.0  # queueing included
EXPLAINING_S: Final = 600.0  # the longest limit of a request


def compare_plans(plan_id: str, other_id: str) -> Call[PlanComparison]:
    """Compare a plan with another one: what changes from the first to the second."""
    call: Call[PlanComparison] = reading(_path(plan_id, "comparison"), as_type(PlanComparison))
    return replace(call, query={"with": other_id}, work_s=COMPARING_S)


def explain_plan(plan_id: str, request: ExplanationRequest | None = None) -> Call[PlanExplanation]:
    """Solve the request of a stored plan again, and explain it."""
    request = request if request is not None else ExplanationRequest()
    work_s = request.time_limit_s if request.time_limit_s is not None else EXPLAINING_S
    return posting(_path(plan_id, "explanation"), request, PlanExplanation, work_s=work_s)


def replay_plan(plan_id: str, request: PlanReplayRequest | None = None) -> Call[StoredPlanReplay]:
    """Replay simulated requests over a stored plan."""
    request = request if request is not None else PlanReplayRequest()
    return posting(_path(plan_id, "replay"), request, StoredPlanReplay, work_s=request.time_limit_s)


def _path(plan_id: str, part: str) -> str:
    return path_of("/v1/plans/{id}/" + part, id=plan_id)
