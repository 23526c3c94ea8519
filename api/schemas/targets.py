"""Targets: running applications that the controller adapts to plans.

A target starts in `observe`: the controller only reads and reports.  `recommend` adds the change set; `apply` executes
it.  A global freeze stops every write in every mode.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from api.schemas.applications import Application, RayServeApplication
from api.schemas.demand_sources import DemandSources
from api.schemas.differences import FieldChange
from api.schemas.expert_maps import ExpertMapSpec, ExpertMapStatus
from api.schemas.names import Name, PartName, Replicas, Text
from api.schemas.probes import HealthProbe, Seconds
from api.schemas.projects import DEFAULT_PROJECT
from api.schemas.target_state import Approval, Digest, TargetState
from api.schemas.wanted import WantedCounts
from fleet.documents import Frozen, RuleError
from planner.request import Name as WorkloadName


class Mode(StrEnum):
    """How far the controller may go."""

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    APPLY = "apply"


class TargetSpec(Frozen):
    """An operator's specification of a target."""

    workload: WorkloadName = Field(description="The workload of the plan that this application serves.")
    application: Application
    mode: Mode = Mode.OBSERVE
    plan_id: str | None = Field(default=None, max_length=64, description="The plan to apply; null: only observe.")
    min_replicas: Replicas = Field(default=1, description="Minimum of all replicas together, whatever the plan.")
    max_step: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1_000, description="Maximum number of replicas changed per reconcile."
    )
    max_step_per_window: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="Maximum number of replicas changed in any `window_s`; null: only `max_step` limits."
    )
    window_s: Annotated[float, Field(ge=1.0, le=86_400.0)] = 600.0
    settle_s: Seconds = Field(
        default=0.0,
        description="How long a plan must differ from the running state before the controller acts.",
    )
    require_approval: bool = Field(
        default=False, description="Write nothing before an operator has approved the exact change set."
    )
    health: HealthProbe | None = Field(
        default=None, description="The health check after a change; null: a plan in place counts as healthy."
    )
    expert_maps: dict[PartName, ExpertMapSpec] = Field(
        default_factory=dict,
        max_length=100,
        description="Key of `deployments` -> target expert placement of its replicas; Ray Serve only.",
    )

    demand: DemandSources | None = Field(
        default=None, description="Where a planning loop reads the traffic of the application; null: nowhere."
    )

    @model_validator(mode="after")
    def _maps_are_for_deployments_of_serve(self) -> "TargetSpec":
        parts = self.application.parts if isinstance(self.application, RayServeApplication) else {}
        allowed = ", ".join(sorted(parts)) or "none, the application is not of kind ray_serve"
        RuleError.raise_for(
            (("expert_maps", part), f"allowed: {allowed}") for part in self.expert_maps if part not in parts
        )
        return self


class Target(Frozen):
    """A stored target."""

    name: Name
    version: int = Field(ge=1)
    spec: TargetSpec
    project: Name = DEFAULT_PROJECT


class TargetPreview(Target):
    """What a write would store."""

    created: bool = Field(description="Whether there is no such target yet.")
    changes: tuple[FieldChange, ...] = Field(description="Of the specification, against the current version.")
    needs_approval: bool = Field(
        description="Whether the controller would wait for an approval before it changes the application."
    )


class Phase(StrEnum):
    """The phase of a target after the last reconcile."""

    OBSERVED = "observed"  # observed; nothing to do or nothing allowed
    RECOMMENDED = "recommended"  # a change set is ready
    SETTLING = "settling"  # a change set is ready and has not been planned for long enough
    AWAITING_APPROVAL = "awaiting_approval"  # a change set waits for an operator's approval
    APPLYING = "applying"  # changes requested, not yet in place
    APPLIED = "applied"  # read back: the application is as planned
    ROLLING_BACK = "rolling_back"  # health worsened after the plan: rolling back to the last verified one
    ROLLED_BACK = "rolled_back"  # read back: the last verified plan is in place, the target's plan is refused
    FROZEN = "frozen"  # changes are ready, a freeze stops them
    FAILED = "failed"  # a backend did not respond, or refused


class Change(Frozen):
    """The change of one deployment, worker group or run from the running to the planned state."""

    gpu: str = Field(description="The part: a key of `deployments` or `groups`, or the run's GPU type.")
    deployment: str
    replicas_now: Replicas
    replicas_planned: Replicas


class SettingChange(Frozen):
    """The current and planned `user_config` of one deployment."""

    gpu: str | None = Field(description="Null: of the router.")
    deployment: str
    key: str
    now: Text | None = Field(description="Null: nothing yet, or nothing valid.")
    planned: Text


class TargetStatus(Frozen):
    """The controller's report on its last reconcile."""

    phase: Phase
    observed_at: datetime
    plan_id: str | None = None
    planned: dict[PartName, Replicas] = Field(default_factory=dict, max_length=100, description="Part -> replicas.")
    applied: dict[PartName, Replicas] = Field(default_factory=dict, max_length=100, description="Part -> running.")
    changes: Annotated[tuple[Change, ...], Field(max_length=100)] = ()
    settings: Annotated[tuple[SettingChange, ...], Field(max_length=200)] = Field(
        default=(),
        description="Pending settings of deployments besides their replicas: clock levels, a router's table.",
    )
    message: Text | None = None
    digest: Digest | None = Field(default=None, description="Digest of the ready change set, for its approval.")
    state: TargetState | None = Field(default=None, description="Null in a report: the stored state stays unchanged.")
    expert_maps: dict[PartName, ExpertMapStatus] = Field(
        default_factory=dict, max_length=100, description="Part -> progress of its expert placement."
    )
    wanted: WantedCounts | None = Field(
        default=None,
        description="Counts for an external autoscaler, in mode `recommend`; null in a report: the stored ones stay.",
    )
    approval: Approval | None = Field(
        default=None, description="The last approval; set by the API, ignored in a report."
    )


class ReportedStatus(Frozen):
    """The last report on one target, in a list."""

    target: Name
    status: TargetStatus


class Freeze(Frozen):
    """The global freeze: while it is on, nothing writes to any target."""

    frozen: bool = False
    reason: Text | None = None
