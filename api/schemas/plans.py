"""Stored plans, and what a service computes about one."""

from typing import Literal

from pydantic import Field

from api.schemas.documents import DocumentKind
from api.schemas.results import ResultHead, ResultType
from fleet.documents import Frozen
from fleet.solvers import SolveStatus
from planner.explain.explanation import Explanation
from planner.policy import ExplainLevel
from planner.request import PlanRequest
from planner.result import Plan
from planner.stored_plan import PlanReplay
from planner.time_limit import Phase

REPLAYING_S = 60.0  # by default


class PlanRecord(ResultHead):
    """One stored plan."""

    request: PlanRequest
    plan: Plan


class PlanSummary(ResultHead):
    """A plan in a list."""

    status: str
    cost_usd_per_h: float | None


class PlanCheck(Frozen):
    """The result of validating a request; an invalid one is a problem."""

    valid: Literal[True] = True


class ComparisonRequest(Frozen):
    """The plan to compare with; only its job reads this."""

    other: str


class ExplanationRequest(Frozen):
    """How to explain a stored plan."""

    level: Literal[ExplainLevel.SHORT, ExplainLevel.FULL] = ExplainLevel.FULL
    time_limit_s: float | None = Field(
        default=None, ge=0.01, le=600, description="For solving and explaining; absent: that of the plan's request."
    )


class CatalogueVersion(Frozen):
    """The versions of a catalogue behind an answer about a stored plan."""

    catalogue: DocumentKind
    planned: int | None = Field(
        description="Version that the plan was solved with, 0: as shipped; null: a release that did not record it."
    )
    used: int = Field(description="Version that this answer was computed with.")
    in_force: int = Field(description="Version in force when this answer was computed.")
    is_as_planned: bool = Field(
        description="Whether the answer has the catalogue of the plan.  A shipped one may differ by release."
    )


class PlanExplanation(Frozen):
    """The explanation of a stored plan: its request solved again, with the catalogues that it was solved with."""

    plan_id: str
    level: ExplainLevel
    same_mix: bool = Field(description="Whether the explained mix is that of the stored plan.")
    status: SolveStatus
    cost_usd_per_h: float | None
    cut: tuple[Phase, ...] = Field(description="The phases that the time limit cut short.")
    inputs: tuple[CatalogueVersion, ...]
    inputs_changed: tuple[DocumentKind, ...] = Field(
        description="Catalogues that changed since the plan and are not stored any more as they were."
    )
    explanation: Explanation


class PlanReplayRequest(Frozen):
    """How to replay simulated requests over a stored plan."""

    hours: float = Field(default=1.0, gt=0, le=168, description="Of traffic; a demand series is replayed as a whole.")
    seed: int = Field(default=0, ge=0, le=2**32)
    time_limit_s: float = Field(default=REPLAYING_S, ge=0.01, le=600)


class StoredPlanReplay(Frozen):
    """The replay of a stored plan."""

    plan_id: str
    hours: float
    seed: int
    inputs: tuple[CatalogueVersion, ...]
    inputs_changed: tuple[DocumentKind, ...] = Field(
        description="Catalogues that changed since the plan and are not stored any more as they were."
    )
    replay: PlanReplay


PLANS = ResultType(name="plan", path="plans", field="plan", request=PlanRequest, record=PlanRecord, summary=PlanSummary)
