"""Wanted replica counts: what a target in mode `recommend` publishes for the autoscaler that owns its counts."""

from pydantic import AwareDatetime, Field

from api.schemas.applications import ObjectName
from api.schemas.names import Name, PartName, PlanId, Replicas
from fleet.documents import Frozen


class WantedCounts(Frozen):
    """The counts of a report: those of the plan, raised to the target's `min_replicas`."""

    plan_id: PlanId
    at: AwareDatetime = Field(description="When a reconcile last confirmed them; set by the API.")
    replicas: dict[PartName, Replicas] = Field(min_length=1, max_length=100, description="Part -> replicas.")


class WantedPart(Frozen):
    """The wanted count of one part."""

    part: PartName
    unit: str = Field(description="What is scaled: a deployment of Ray Serve, a worker group, a run, or `KIND/NAME`.")
    replicas: Replicas
    namespace: Name | None = Field(default=None, description="Of the Kubernetes object; null: it is none.")
    kind: str | None = Field(default=None, description="Of the Kubernetes object, such as `Deployment`.")
    name: ObjectName | None = Field(default=None, description="Of the Kubernetes object.")


class WantedReplicas(Frozen):
    """The published counts of one target."""

    target: Name
    plan_id: PlanId
    at: AwareDatetime = Field(description="When a reconcile last confirmed them.")
    age_s: float = Field(ge=0.0, description="Time since then in seconds.")
    parts: tuple[WantedPart, ...]
