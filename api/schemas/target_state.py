"""What the controller has to remember of a target.  It keeps nothing itself, so the API keeps this with the status.

A report without a memory leaves the one that is kept as it is: whoever could not read it must not wipe it out.
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
    """What is planned and not in place, and since when just this has been so."""

    planned: dict[PartName, Replicas] = Field(max_length=100)
    settings: Digest | None = Field(default=None, description="Of what deployments are to be told beside.")
    since: datetime


class Spent(Frozen):
    """Replicas that were about to be changed: written down before they are, so that a restart finds them."""

    at: datetime
    replicas: Annotated[int, Field(ge=1)]


class Readings(Frozen):
    """Values of the health probe; null: not known."""

    error_rate: Measured | None = None
    latency_s: Measured | None = None


class PendingChange(Frozen):
    """A change that has begun and is not judged yet."""

    plan_id: PlanId
    began_at: datetime
    moved_at: datetime
    before: Readings = Field(default=Readings(), description="Health before the first write.")


class ApprovalGrant(Frozen):
    """An approval that is being carried out: good until the target is as planned, or said otherwise."""

    plan_id: PlanId
    target_version: Annotated[int, Field(ge=1)]


class Refusal(ApprovalGrant):
    """A plan after which health worsened: not tried again until the target is said otherwise, or it is approved."""

    at: datetime
    reason: Text


class TargetMemory(Frozen):
    """All that one round leaves to the next."""

    goal: Goal | None = None
    spent: Annotated[tuple[Spent, ...], Field(max_length=SPENT_MAX)] = ()
    change: PendingChange | None = None
    licence: ApprovalGrant | None = None
    approvals_used: Annotated[int, Field(ge=0)] = 0
    verified_plan_id: PlanId | None = Field(default=None, description="The last plan seen in place and healthy.")
    refused: Refusal | None = None
    approved_maps: Digest | None = Field(
        default=None,
        description="Of approved expert maps: good until the target is said otherwise.",
    )


class ApprovalRequest(Frozen):
    """What an operator approves: exactly the change set with this digest."""

    plan_id: PlanId | None = Field(description="The target's; null where it is pointed at none.")
    digest: Digest


class Approval(ApprovalRequest):
    """An approval as it stands; each is good for one carrying out."""

    number: Annotated[int, Field(ge=1)]
    approved_at: datetime
    approved_by: str
