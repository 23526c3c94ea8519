"""The fields of Kubernetes objects and pods that actuators and routers use, and what follows from them.  Pure."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from deploy.common.errors import ActuationError
from fleet.documents import dotted, validation_problems

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
DRAIN_BEGAN = "fleetwright.io/drain-began"  # annotation of a pod that is to stop; routers send it no new request


class ObjectPart(BaseModel):
    """The used part of a Kubernetes object."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


T = TypeVar("T", bound=BaseModel)


def parsed(model: type[T], document: Any) -> T:
    """Raise ActuationError for a document that is not of this form, with its name and the first field."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        metadata = document.get("metadata") if isinstance(document, Mapping) else None
        name = metadata.get("name", "") if isinstance(metadata, Mapping) else ""
        path, message = validation_problems(error)[0]
        where = f"{dotted(path)}: " if path else ""
        raise ActuationError(
            f"the API server returned no valid {' '.join([model.__name__, str(name)]).strip()}: {where}{message}"
        ) from error


class Condition(ObjectPart):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _ManagedFields(ObjectPart):
    manager: str = ""
    operation: str = ""
    time: str = ""
    subresource: str = ""
    fields_v1: dict[str, Any] = Field(default={}, alias="fieldsV1")

    def has(self, path: tuple[str, ...]) -> bool:
        """Return whether this entry has a field, such as ("f:spec", "f:replicas")."""
        found: Any = self.fields_v1
        for name in path:
            if not isinstance(found, Mapping) or name not in found:
                return False
            found = found[name]
        return True


class Owner(ObjectPart):
    api_version: str = ""
    kind: str
    name: str
    controller: bool = False


class Metadata(ObjectPart):
    name: str
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    managed_fields: tuple[_ManagedFields, ...] = ()
    owner_references: tuple[Owner, ...] = ()

    @property
    def controller(self) -> Owner | None:
        """Return the object that manages this one."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    def appliers(self, *path: str, ours: str) -> list[str]:
        """Return the managers other than `ours` that own a field by server-side apply and so reset it."""
        return sorted({entry.manager for entry in self._managers(path) if entry.operation == "Apply"} - {ours})

    def last_manager(self, *path: str) -> str | None:
        """Return the last manager that wrote a field; None where the server does not record it."""
        entries = sorted(self._managers(path), key=lambda entry: entry.time)
        return entries[-1].manager if entries else None

    def _managers(self, path: tuple[str, ...]) -> list[_ManagedFields]:
        return [entry for entry in self.managed_fields if entry.subresource != "status" and entry.has(path)]


class _Sleep(ObjectPart):
    seconds: float = 0.0


class _PreStop(ObjectPart):
    sleep: _Sleep | None = None


class _Lifecycle(ObjectPart):
    pre_stop: _PreStop | None = None


class _Container(ObjectPart):
    lifecycle: _Lifecycle | None = None


class _PodSpec(ObjectPart):
    containers: tuple[_Container, ...] = ()
    termination_grace_period_seconds: float = 30.0  # the API server's own default


class _PodStatus(ObjectPart):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    pod_ip: str = Field(default="", alias="podIP")


class Pod(ObjectPart):
    metadata: Metadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def stays(self) -> bool:
        """Return whether the pod is not being deleted."""
        return self.metadata.deletion_timestamp is None

    @property
    def active(self) -> bool:
        """Return whether controllers count the pod: an evicted one stays listed as failed."""
        return self.stays and self.status.phase not in {"Failed", "Succeeded"}

    @property
    def drains(self) -> bool:
        """Return whether the pod is marked to stop."""
        return DRAIN_BEGAN in self.metadata.annotations

    @property
    def ready(self) -> bool:
        return self.stays and any(
            condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions
        )

    @property
    def deletion_cost(self) -> int:
        """Return the pod-deletion-cost annotation; 0 where there is none, or no number."""
        try:
            return int(self.metadata.annotations.get(DELETION_COST, "0"))
        except ValueError:
            return 0

    @property
    def pre_stop_hooks(self) -> list[_PreStop]:
        return [
            container.lifecycle.pre_stop
            for container in self.spec.containers
            if container.lifecycle is not None and container.lifecycle.pre_stop is not None
        ]


class PodList(ObjectPart):
    items: tuple[Pod, ...]
