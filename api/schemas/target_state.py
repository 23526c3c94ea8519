"""The controller's persistent state of a target.  The controller stores nothing, so the API keeps this with the status.

A report without a state leaves the stored state unchanged: a controller that could not read it must not delete it.
"""

from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from api.schemas.names import PartName, PlanId, Replicas, Text
from fleet.documents import Frozen

SPENT_MAX = 128
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Measured = Annotated[float, Field(ge=0.0)]


class Goal(Frozen):
    """A planned change that is not in place, and since when it has been planned."""

    planned: dict[PartName, Replicas] = Field(max_length=100)
    settings: Digest | None = Field(default=None, description="Settings for deployments besides their replicas.")
    since: datetime


class Spent(Frozen):
    """Replicas of a change, stored before the change, so that a restart finds them."""

    at: datetime
    replicas: Annotated[int, Field(ge=1)]


class Readings(Frozen):
    """Values of the health probe; null: unknown."""

    error_rate: Measured | None = None
    latency_s: Measured | None = None


class PendingChange(Frozen):
    """A change that has begun and has no health check yet."""

    plan_id: PlanId
    began_at: datetime
    moved_at: datetime
    before: Readings = Field(default=Readings(), description="Health before the first write.")


class ApprovalGrant(Frozen):
    """An approval in use: valid until the target is as planned or its specification changes."""

    plan_id: PlanId
    target_version: Annotated[int, Field(ge=1)]


class Refusal(ApprovalGrant):
    """A plan after which health worsened: refused until the specification changes or an operator approves it."""

    at: datetime
    reason: Text


class TargetState(Frozen):
    """The state that one reconcile leaves for the next."""

    goal: Goal | None = None
    spent: Annotated[tuple[Spent, ...], Field(max_length=SPENT_MAX)] = ()
    change: PendingChange | None = None
    approval_grant: ApprovalGrant | None = None
    approvals_used: Annotated[int, Field(ge=0)] = 0
    verified_plan_id: PlanId | None = Field(default=None, description="The last plan that was in place and healthy.")
    refused: Refusal | None = None
    approved_maps: Digest | None = Field(
        default=None,
        description="Of approved expert maps: valid until the specification changes.",
    )


class ApprovalRequest(Frozen):
    """An operator's approval of exactly the change set with this digest."""

    plan_id: PlanId | None = Field(description="The plan of the target; null: it has none.")
    digest: Digest


class Approval(ApprovalRequest):
    """A stored approval; it covers one execution."""

    number: Annotated[int, Field(ge=1)]
    approved_at: datetime
    approved_by: str
