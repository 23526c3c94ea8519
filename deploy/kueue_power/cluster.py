"""Kueue's objects in a cluster: what the power check reads and writes there."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from deploy.common.errors import ActuationError, OvertakenError
from deploy.common.kubernetes_client import Kubernetes, RefusedError, listed
from deploy.common.kubernetes_objects import parsed
from deploy.kueue_power.workloads import API, CONTROLLER, AdmissionCheck, ResourceFlavor, Workload
from deploy.kueue_power.writes import state_patch

# A JSON patch whose test fails is invalid; a merge patch with another version conflicts.
OVERTAKEN: Final = frozenset((HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.NOT_FOUND))


@dataclass(frozen=True, slots=True, kw_only=True)
class KueueCluster:
    kubernetes: Kubernetes

    async def checks(self) -> list[AdmissionCheck]:
        """Return the admission checks that name this controller."""
        found = [parsed(AdmissionCheck, item) async for item in listed(self.kubernetes, f"{API}/admissionchecks")]
        return [each for each in found if each.spec.controller_name == CONTROLLER]

    async def flavors(self) -> dict[str, Mapping[str, str]]:
        """Return the node labels of each resource flavor."""
        found = [parsed(ResourceFlavor, item) async for item in listed(self.kubernetes, f"{API}/resourceflavors")]
        return {each.metadata.name: each.spec.node_labels for each in found}

    async def workloads(self) -> list[Workload]:
        return [parsed(Workload, item) async for item in listed(self.kubernetes, f"{API}/workloads")]

    async def set_state(self, workload: Workload, at: int, state: Mapping[str, Any]) -> None:
        """Set the state of a check.  Raise OvertakenError if the workload changed since it was read."""
        try:
            await self.kubernetes.patch(f"{workload.path}/status", state_patch(workload, at, state))
        except RefusedError as error:
            raise _overtaken(error, workload.key) from error

    async def set_active(self, check: AdmissionCheck, patch: Mapping[str, Any]) -> None:
        try:
            await self.kubernetes.patch(f"{API}/admissionchecks/{check.metadata.name}/status", patch)
        except RefusedError as error:
            raise _overtaken(error, check.metadata.name) from error


def _overtaken(error: RefusedError, name: str) -> ActuationError:
    return OvertakenError(f"{name} has changed: {error}") if error.status in OVERTAKEN else error
