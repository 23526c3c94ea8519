"""Targets: running applications that the controller adapts to plans.

A target starts in `observe`: the controller only reads and reports.  `recommend` adds the change set; `apply` executes
it.  A global freeze stops every write in every mode.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from api.schemas.differences import FieldChange
from api.schemas.expert_maps import ExpertMapSpec, ExpertMapStatus
from api.schemas.names import GpuName, Name, PartKey, PartName, Replicas, Text
from api.schemas.probes import HealthProbe, PlainUrl, Seconds
from api.schemas.projects import DEFAULT_PROJECT
from api.schemas.target_state import Approval, Digest, TargetState
from fleet.documents import Frozen, RuleError, Violation, validate_nested, validation_problems
from planner.request import Name as WorkloadName

ServeName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f/]+$")]

# The unit of scaling; `deploy.controller.plan_reader` maps replicas of a plan to parts.
PARTS = "GPU type, or replica option of one (`H100-SXM/x2`, `H100-SXM/tp2-fp8@0.7`)"


class Mode(StrEnum):
    """How far the controller may go."""

    OBSERVE = "observe"
    RECOMMEND = "recommend"
    APPLY = "apply"


class ServeRouter(Frozen):
    """The application's ingress that splits requests by the plan's weights: `deploy.router.serve_app`."""

    deployment: ServeName = "Router"
    url: PlainUrl | None = Field(
        default=None,
        description="Where the router reports its table, `/fleetwright/table` of the application; "
        "null: the table that Serve received counts, even if the router refused it.",
    )
    max_in_flight: dict[ServeName, Annotated[int, Field(ge=1, le=100_000)]] = Field(
        default_factory=dict,
        max_length=100,
        description="Deployment -> concurrent requests of one replica; 64 by default.",
    )


def _require_one_each(parts: Mapping[str, str], field: str, unit: str) -> None:
    if len(set(parts.values())) != len(parts):
        message = f"two GPU types or replica options name the same {unit}; allowed: one for each"
        raise ValueError(f"{field}: {message}")


class RayServeApplication(Frozen):
    """A Ray Serve application with a deployment per GPU type or replica option, scaled by its external scale API."""

    kind: Literal["ray_serve"] = "ray_serve"
    dashboard_url: PlainUrl = Field(description="The Ray dashboard with `/api/serve/applications/`.")
    application: ServeName
    deployments: dict[PartKey, ServeName] = Field(min_length=1, max_length=100, description=f"{PARTS} -> deployment.")
    follow_clocks: bool = Field(
        default=False, description="Set the plan's clock level on each deployment: `clock` in its user_config."
    )
    router: ServeRouter | None = Field(
        default=None, description="Set the plan's weights on this router: `table` in its user_config."
    )

    @property
    def parts(self) -> Mapping[str, str]:
        """Name the scaled unit of each part."""
        return self.deployments

    @model_validator(mode="after")
    def _router_is_beside_them(self) -> "RayServeApplication":
        if self.router is None:
            return self
        allowed = ", ".join(sorted(self.deployments.values()))
        violations: list[Violation] = [
            (("router", "max_in_flight", name), f"allowed: {allowed}")
            for name in sorted(self.router.max_in_flight.keys() - set(self.deployments.values()))
        ]
        if self.router.deployment in self.deployments.values():
            violations.append(
                (("router", "deployment"), f"allowed: a deployment that none of deployments names ({allowed})")
            )
        RuleError.raise_for(violations)
        return self

    @model_validator(mode="after")
    def _one_deployment_per_part(self) -> "RayServeApplication":
        _require_one_each(self.deployments, "deployments", "deployment")
        return self


def _names_its_kind(schema: dict[str, Any]) -> None:
    """Treat an application without a kind as a Serve application."""
    schema["required"] = ["kind", *schema["required"]]


class RayClusterGroups(Frozen):
    """Worker groups of a KubeRay RayCluster, one per GPU type or replica option, scaled by the Kubernetes API."""

    model_config = ConfigDict(json_schema_extra=_names_its_kind)

    kind: Literal["ray_cluster"] = "ray_cluster"
    namespace: Name
    cluster: Name = Field(description="The RayCluster's name.")
    groups: dict[PartKey, ServeName] = Field(min_length=1, max_length=100, description=f"{PARTS} -> worker group.")

    @property
    def parts(self) -> Mapping[str, str]:
        """Name the scaled unit of each part."""
        return self.groups

    @model_validator(mode="after")
    def _one_group_per_part(self) -> "RayClusterGroups":
        _require_one_each(self.groups, "groups", "worker group")
        return self


class RayTrainRun(Frozen):
    """A Ray Train run that receives its number of workers from a named actor in the controller's Ray cluster."""

    model_config = ConfigDict(json_schema_extra=_names_its_kind)

    kind: Literal["ray_train"] = "ray_train"
    run: ServeName = Field(description="The run's name.")
    namespace: ServeName = Field(default="fleetwright", description="Ray namespace of the run's named actor.")
    gpu: GpuName = Field(description="GPU type of its workers.")
    workers_per_replica: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1, description="Workers per replica of the plan."
    )

    @property
    def parts(self) -> Mapping[str, str]:
        """Name the scaled unit of each part."""
        return {self.gpu: self.run}


_KINDS: Mapping[str, type[Frozen]] = {
    "ray_serve": RayServeApplication,
    "ray_cluster": RayClusterGroups,
    "ray_train": RayTrainRun,
}


def _of_its_kind(value: Any, info: ValidationInfo) -> Any:
    """Validate by kind, so that errors name fields of that kind only; without a kind it is a Serve application."""
    if isinstance(value, Frozen):
        return value
    if not isinstance(value, dict):
        raise RuleError([((), "expected a mapping of fields")])
    kind = value.get("kind", "ray_serve")
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise RuleError([(("kind",), f"allowed: {', '.join(_KINDS)}")])
    try:
        return validate_nested(model, value, info)
    except ValidationError as error:
        raise RuleError(validation_problems(error)) from error


Application = Annotated[RayServeApplication | RayClusterGroups | RayTrainRun, BeforeValidator(_of_its_kind)]


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
