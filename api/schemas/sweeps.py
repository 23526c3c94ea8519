"""Stored sweeps: one request planned over a grid of rates, SLOs, prices and power limits."""

from pydantic import Field

from api.schemas.results import ResultHead, ResultType
from fleet.documents import Frozen
from planner.request import PlanRequest
from planner.sweep import Axis, Sweep

MAX_AXES = 8


class SweepRequest(Frozen):
    """A request of a plan, and the axes of the grid."""

    request: PlanRequest
    axes: tuple[Axis, ...] = Field(min_length=1, max_length=MAX_AXES)


class SweepRecord(ResultHead):
    """One stored sweep."""

    request: SweepRequest
    sweep: Sweep


class SweepSummary(ResultHead):
    """A sweep in a list."""

    points: int = Field(description="Of the grid that were planned, with a mix or without.")
    failed: int = Field(description="Points that could not be planned.")
    over: str = Field(description="The axes.")


SWEEPS = ResultType(
    name="sweep", path="sweeps", field="sweep", request=SweepRequest, record=SweepRecord, summary=SweepSummary
)
