"""Stored plans."""

from typing import Literal

from api.schemas.results import ResultHead, ResultType
from fleet.documents import Frozen
from planner.request import PlanRequest
from planner.result import Plan


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


PLANS = ResultType(name="plan", path="plans", field="plan", request=PlanRequest, record=PlanRecord, summary=PlanSummary)
