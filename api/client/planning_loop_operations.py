"""Describes the operations on planning loops as `Call`s."""

from dataclasses import replace
from http import HTTPStatus

from api.client.calls import (
    MISSING,
    Call,
    Versioned,
    as_nothing,
    as_type,
    as_versioned,
    deleting,
    if_matching,
    listing,
    path_of,
    posting,
    putting,
    reading,
    under_lease,
)
from api.schemas.leases import LeaseTerm
from api.schemas.pages import Page
from api.schemas.planning_loops import (
    LoopPlan,
    LoopPlanRequest,
    PlanningLoop,
    PlanningLoopSpec,
    PlanningLoopStatus,
    ReportedLoopStatus,
)


def list_planning_loops(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[PlanningLoop]]:
    """Read planning loops, by name."""
    return listing("/v1/planning-loops", PlanningLoop, limit=limit, cursor=cursor)


def get_planning_loop(name: str) -> Call[Versioned[PlanningLoop]]:
    """Read one planning loop."""
    return reading(_path(name), as_versioned(PlanningLoop))


def create_planning_loop(name: str, spec: PlanningLoopSpec) -> Call[Versioned[PlanningLoop]]:
    """Store a planning loop; PreconditionFailedError when the name is taken."""
    return putting(_path(name), spec, MISSING, as_versioned(PlanningLoop), success=HTTPStatus.CREATED)


def replace_planning_loop(name: str, spec: PlanningLoopSpec, *, if_match: str) -> Call[Versioned[PlanningLoop]]:
    """Replace the specification of a planning loop."""
    return putting(_path(name), spec, if_matching(if_match), as_versioned(PlanningLoop))


def delete_planning_loop(name: str, *, if_match: str) -> Call[None]:
    """Delete a planning loop with its report; its targets keep their plans."""
    return deleting(_path(name), if_matching(if_match))


def get_planning_loop_status(name: str) -> Call[PlanningLoopStatus]:
    """Read the last report on a planning loop, with its state; NotFoundError before the first."""
    return reading(f"{_path(name)}/status", as_type(PlanningLoopStatus))


def report_planning_loop_status(name: str, status: PlanningLoopStatus, *, held: LeaseTerm | None = None) -> Call[None]:
    """Replace the report on a loop; ConflictError when the lease of the controller has another term than `held`."""
    call = putting(f"{_path(name)}/status", status, under_lease(held), as_nothing, success=HTTPStatus.NO_CONTENT)
    return replace(call, repeatable=True)


def list_planning_loop_statuses(
    *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[ReportedLoopStatus]]:
    """Read the last reports on all planning loops, by name of the loop, without their states."""
    return listing("/v1/planning-loop-statuses", ReportedLoopStatus, limit=limit, cursor=cursor)


def set_planning_loop_plan(name: str, request: LoopPlanRequest, *, held: LeaseTerm) -> Call[LoopPlan]:
    """Set the plan of all targets of a loop, or of none; ConflictError when the loop, the plan of a target or the lease
    has changed, or when a freeze is on.
    """
    call = posting(f"{_path(name)}/plan", request, LoopPlan)
    return replace(call, headers={**call.headers, **under_lease(held)})


def _path(name: str) -> str:
    return path_of("/v1/planning-loops/{name}", name=name)
