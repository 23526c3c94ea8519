"""Targets: running applications that plans are carried out on.

A target starts in `observe`: Fleetwright looks and reports, nothing more.  `recommend` adds the change set it would
make; `apply` makes it.  A global freeze stops every write whatever the mode.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, HttpUrl, StringConstraints, model_validator

from api.schemas.names import Name, Text
from fleet.documents import Frozen, RuleError
from planner.request import Word

ServeName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f/]+$")]
GpuName = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
Replicas = Annotated[int, Field(ge=0, le=10_000)]


class Mode(StrEnum):
    """How far the controller may go on a target."""

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    APPLY = "apply"


class RayServeApplication(Frozen):
    """A Ray Serve application with one deployment per GPU type, scaled through Serve's external scale API."""

    kind: Literal["ray_serve"] = "ray_serve"
    dashboard_url: HttpUrl = Field(description="The Ray dashboard that answers `/api/serve/applications/`.")
    application: ServeName
    deployments: dict[GpuName, ServeName] = Field(min_length=1, max_length=100, description="GPU type -> deployment.")

    @model_validator(mode="after")
    def _says_only_where(self) -> "RayServeApplication":
        url = self.dashboard_url
        if url.username or url.password or url.query or url.fragment:
            raise RuleError(
                [(("dashboard_url",), "allowed: http(s)://HOST[:PORT][/PATH], without user, query or fragment")]
            )
        return self

    @model_validator(mode="after")
    def _one_deployment_per_gpu(self) -> "RayServeApplication":
        if len(set(self.deployments.values())) != len(self.deployments):
            raise ValueError(
                "deployments: two GPU types name the same deployment; allowed: one deployment per GPU type"
            )
        return self


class TargetSpec(Frozen):
    """What an operator says of a target."""

    workload: Word = Field(description="The workload of the plan that this application serves.")
    application: RayServeApplication
    mode: Mode = Mode.OBSERVE
    plan_id: str | None = Field(default=None, max_length=64, description="The plan to carry out; null: only look.")
    min_replicas: Replicas = Field(default=1, description="Never fewer replicas in all, whatever the plan says.")
    max_step: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1_000, description="Most replicas changed in one round."
    )


class Target(Frozen):
    """A target with the name it is known by."""

    name: Name
    version: int = Field(ge=1)
    spec: TargetSpec


class Phase(StrEnum):
    """Where a target stands after the last round."""

    OBSERVED = "observed"  # looked, nothing to do or nothing allowed
    RECOMMENDED = "recommended"  # a change set stands ready
    APPLYING = "applying"  # changes asked for, not yet seen in place
    APPLIED = "applied"  # read back: the world is as planned
    FROZEN = "frozen"  # changes stand ready, a freeze holds them
    FAILED = "failed"  # the world did not answer, or said no


class Change(Frozen):
    """One deployment's move from what is to what is planned."""

    gpu: str
    deployment: str
    replicas_now: Replicas
    replicas_planned: Replicas


class TargetStatus(Frozen):
    """What the controller saw and did in its last round."""

    phase: Phase
    observed_at: datetime
    plan_id: str | None = None
    planned: dict[GpuName, Replicas] = Field(default_factory=dict, max_length=100, description="GPU type -> replicas.")
    applied: dict[GpuName, Replicas] = Field(default_factory=dict, max_length=100, description="GPU type -> running.")
    changes: Annotated[tuple[Change, ...], Field(max_length=100)] = ()
    message: Text | None = None


class Freeze(Frozen):
    """The global freeze: while it holds, nothing is written to any target."""

    frozen: bool = False
    reason: Text | None = None
