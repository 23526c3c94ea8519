"""The fields of the custom resources.  Pure."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from pydantic import Field

from deploy.common.kubernetes_objects import Metadata, ObjectPart

GROUP: Final = "fleetwright.io"
API: Final = f"/apis/{GROUP}/v1alpha1"
FINALIZER: Final = f"{GROUP}/delete-target"
ADOPT: Final = f"{GROUP}/adopt-version"  # annotation: this version of the target may be replaced by the object


class DeletionPolicy(StrEnum):
    RETAIN = "Retain"
    DELETE = "Delete"


class ResourceMetadata(Metadata):
    namespace: str = ""
    generation: int = 0
    finalizers: tuple[str, ...] = ()


class ResourceStatus(ObjectPart):
    name: str | None = None
    version: int | None = None
    digest: str | None = None
    plan_id: str | None = None
    phase: str | None = None
    observed_generation: int = 0
    conditions: tuple[Mapping[str, Any], ...] = ()


class _Resource(ObjectPart):
    metadata: ResourceMetadata
    status: ResourceStatus = ResourceStatus()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


class _TargetSpec(ObjectPart):
    name: str | None = None
    project: str | None = None
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    target: Mapping[str, Any] = Field(default={})


class FleetTarget(_Resource):
    spec: _TargetSpec

    @property
    def document_name(self) -> str:
        return self.spec.name or self.metadata.name

    @property
    def path(self) -> str:
        return f"{API}/namespaces/{self.metadata.namespace}/fleettargets/{self.metadata.name}"


class _RequestSpec(ObjectPart):
    name: str | None = None
    project: str | None = None
    request: Mapping[str, Any] = Field(default={})


class PlanRequestObject(_Resource):
    spec: _RequestSpec

    @property
    def path(self) -> str:
        return f"{API}/namespaces/{self.metadata.namespace}/planrequests/{self.metadata.name}"
