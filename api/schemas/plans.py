"""Plans as stored: the request, the answer, who asked and when.  Immutable."""

from datetime import datetime

from pydantic import Field

from fleet.documents import Frozen
from planner.answer import Plan
from planner.request import PlanRequest


class PlanRecord(Frozen):
    """One stored plan."""

    id: str = Field(description="Sorts by time of creation.")
    created_at: datetime
    created_by: str
    request: PlanRequest
    plan: Plan


class PlanSummary(Frozen):
    """A plan in a list."""

    id: str
    created_at: datetime
    created_by: str
    status: str
    cost_usd_per_h: float | None
