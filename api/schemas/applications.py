"""Applications: the running workloads that a target scales, by kind.

A part of an application is scaled as a whole: a deployment, a worker group, a run or a Kubernetes object.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    model_validator,
)

from api.schemas.kinds import validate_by_kind
from api.schemas.names import GpuName, Name, PartKey
from api.schemas.probes import PlainUrl
from fleet.documents import Frozen, RuleError, Violation

ServeName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f/]+$")]

_API_VERSION = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?$"
# A DNS subdomain, as most kinds of objects allow.
ObjectName = Annotated[str, StringConstraints(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]

_POINTER = r"^/spec(/[A-Za-z0-9_.-]+)+$"
_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
PodLabelName = Annotated[
    str, StringConstraints(max_length=317, pattern=rf"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_LABEL}$")
]
PodLabelValue = Annotated[str, StringConstraints(max_length=63, pattern=rf"^{_LABEL}$")]

# The unit of scaling; `deploy.controller.plan_reader` maps replicas of a plan to parts.
PARTS = "GPU type, or replica option of one (`H100-SXM/x2`, `H100-SXM/tp2-fp8@0.7`)"


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


class RayServiceGroups(Frozen):
    """Worker groups of the RayCluster that is active under a KubeRay RayService, which an upgrade replaces."""

    model_config = ConfigDict(json_schema_extra=_names_its_kind)

    kind: Literal["ray_service"] = "ray_service"
    namespace: Name
    service: ObjectName = Field(description="The RayService's name.")
    groups: dict[PartKey, ServeName] = Field(min_length=1, max_length=100, description=f"{PARTS} -> worker group.")

    @property
    def parts(self) -> Mapping[str, str]:
        """Name the scaled unit of each part."""
        return self.groups

    @model_validator(mode="after")
    def _one_group_per_part(self) -> "RayServiceGroups":
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


class ScaledObject(Frozen):
    """A Kubernetes object with a `scale` subresource, one of KServe's, or one with a count in another field."""

    api_version: Annotated[str, StringConstraints(max_length=100, pattern=_API_VERSION)] = Field(
        default="apps/v1", description="Group and version, such as `leaderworkerset.x-k8s.io/v1`."
    )
    kind: Annotated[str, StringConstraints(max_length=63, pattern=r"^[A-Z][A-Za-z0-9]*$")] = "Deployment"
    name: ObjectName
    replicas_field: Annotated[str, StringConstraints(max_length=200, pattern=_POINTER)] | None = Field(
        default=None,
        description="JSON pointer of the count, such as `/spec/prefill/replicas`; null: the `scale` subresource, or "
        "the field of a kind of KServe.",
    )
    pod_labels: dict[PodLabelName, PodLabelValue] | None = Field(
        default=None, min_length=1, max_length=10, description="Labels of the object's pods; goes with replicas_field."
    )

    @model_validator(mode="after")
    def _names_its_pods(self) -> "ScaledObject":
        if self.replicas_field is not None and self.pod_labels is None:
            raise RuleError([(("pod_labels",), "is required with replicas_field: which pods are its replicas")])
        return self


class PodDrain(Frozen):
    """Before a count is lowered, wait until the pods that stop run no request."""

    metrics_port: Annotated[int, Field(ge=1, le=65_535)] = Field(
        default=8000, description="The engine's port with `/metrics` in each pod: vLLM, SGLang or TensorRT-LLM."
    )
    max_wait_s: Annotated[float, Field(gt=0.0, le=86_400.0)] = Field(
        default=600.0, description="Then the count is lowered all the same."
    )


class KubernetesScale(Frozen):
    """Kubernetes objects, one per GPU type or replica option, scaled by their `scale` subresource or a field."""

    model_config = ConfigDict(json_schema_extra=_names_its_kind)

    kind: Literal["kubernetes_scale"] = "kubernetes_scale"
    namespace: Name
    objects: dict[PartKey, ScaledObject] = Field(
        min_length=1, max_length=100, description=f"{PARTS} -> Deployment, StatefulSet, LeaderWorkerSet or another."
    )
    drain: PodDrain | None = Field(default=None, description="null: a count is lowered at once.")

    @property
    def parts(self) -> Mapping[str, str]:
        """Name the scaled unit of each part."""
        return {
            part: f"{scaled.kind}/{scaled.name}{scaled.replicas_field or ''}" for part, scaled in self.objects.items()
        }

    @model_validator(mode="after")
    def _one_object_per_part(self) -> "KubernetesScale":
        _require_one_each(self.parts, "objects", "object")
        return self


_KINDS: Mapping[str, type[Frozen]] = {
    "ray_serve": RayServeApplication,
    "ray_cluster": RayClusterGroups,
    "ray_service": RayServiceGroups,
    "ray_train": RayTrainRun,
    "kubernetes_scale": KubernetesScale,
}


def _of_its_kind(value: Any, info: ValidationInfo) -> Any:
    """Treat an application without a kind as a Serve application."""
    return validate_by_kind(value, info, kinds=_KINDS, default="ray_serve")


Application = Annotated[
    RayServeApplication | RayClusterGroups | RayServiceGroups | RayTrainRun | KubernetesScale,
    BeforeValidator(_of_its_kind),
]
