"""The actuator of a KubeRay RayCluster: one worker group per part, scaled through the Kubernetes API.

    GET   .../rayclusters/{cluster}      requested counts, and who manages the cluster
    GET   .../pods?labelSelector=...     which workers are ready
    PATCH .../rayclusters/{cluster}      a JSON patch that tests the group's name and the counts it replaces

`spec.workerGroupSpecs` is an atomic list in KubeRay's CRD: server-side apply owns all of it, pod templates included, or
none.  So only the count is patched, under the field manager `fleetwright`.  Where another manager owns the list by
server-side apply, the actuator writes nothing and names that manager.

With the in-tree autoscaler, `replicas` belongs to the autoscaler: `minReplicas` and `maxReplicas` are both set to the
planned count.  Without it, KubeRay deletes any workers unless `scaleStrategy.workersToDelete` names them, so the
actuator names those whose loss costs least.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from api.schemas.applications import RayClusterGroups
from deploy.actuators.base import Bounds, Change, Step, TargetSnapshot
from deploy.actuators.ray_cluster.objects import (
    CLUSTER_LABEL,
    KUBERAY,
    NODE_TYPE_LABEL,
    RayCluster,
    Worker,
    WorkerGroup,
    running_replicas,
    workers_to_give_up,
)
from deploy.common.errors import ActuationError
from deploy.common.kubernetes_client import FIELD_MANAGER, Kubernetes, RefusedError
from deploy.common.kubernetes_objects import ObjectPart, parsed

FIELD = "spec.workerGroupSpecs"


class _Workers(ObjectPart):
    items: list[Worker]


@dataclass(frozen=True, slots=True)
class RayClusterActuator:
    kube: Kubernetes
    application: RayClusterGroups
    service: str | None = None  # the RayService that owns the cluster and leaves its counts alone

    async def observe(self) -> TargetSnapshot:
        cluster = await self._read()
        workers = await self._workers()
        found = {part: self._group(cluster, name)[1] for part, name in sorted(self.application.groups.items())}
        return TargetSnapshot(
            requested={part: group.requested for part, group in found.items()},
            running={part: running_replicas(group, workers) for part, group in found.items()},
            bounds={} if cluster.autoscaled else {part: self._bounds(group) for part, group in found.items()},
            note="; ".join(_notes(cluster, list(found.values()), service=self.service)) or None,
        )

    async def apply(self, change: Change) -> None:
        """Patch in the step's count, if the count still has the value that the step started from."""
        if not isinstance(change, Step):
            raise ActuationError(f"worker groups of RayCluster {self._name} have no user_config and no drain")
        cluster = await self._read()
        if appliers := cluster.appliers(ours=FIELD_MANAGER):
            raise ActuationError(
                f"{FIELD} of RayCluster {self._name} is applied by {', '.join(appliers)}, which keeps it: scale there, "
                "or let that manager create the cluster and no longer apply the list"
            )
        index, group = self._group(cluster, self.application.groups[change.part])
        if group.requested == change.replicas_after:
            return
        if group.requested != change.replicas_before:
            raise ActuationError(self._changed_meanwhile(cluster, group))
        workers = [] if cluster.autoscaled else await self._workers()
        try:
            await self.kube.patch(self._path, list(_scaling_patch(cluster, index, change.replicas_after, workers)))
        except RefusedError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
            now = await self._read()
            raise ActuationError(f"{self._changed_meanwhile(now, group)}: {error}") from error

    def _bounds(self, group: WorkerGroup) -> Bounds:
        source = f"{FIELD}[{group.group_name}].replicas of RayCluster {self._name} (minReplicas and maxReplicas)"
        return Bounds(group.min_replicas, group.max_replicas, source)

    @property
    def _name(self) -> str:
        return f"{self.application.namespace}/{self.application.cluster}"

    @property
    def _path(self) -> str:
        return f"/apis/ray.io/v1/namespaces/{self.application.namespace}/rayclusters/{self.application.cluster}"

    async def _read(self) -> RayCluster:
        try:
            return parsed(RayCluster, await self.kube.get(self._path))
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            raise ActuationError(f"there is no RayCluster {self._name}: {error}") from error

    async def _workers(self) -> list[Worker]:
        selector = f"{CLUSTER_LABEL}={self.application.cluster},{NODE_TYPE_LABEL}=worker"
        path = f"/api/v1/namespaces/{self.application.namespace}/pods"
        return parsed(_Workers, await self.kube.get(path, labelSelector=selector)).items

    def _group(self, cluster: RayCluster, name: str) -> tuple[int, WorkerGroup]:
        groups = cluster.spec.worker_group_specs
        for index, group in enumerate(groups):
            if group.group_name == name:
                return index, group
        there = ", ".join(sorted(group.group_name for group in groups)) or "none"
        raise ActuationError(f"RayCluster {self._name} has no worker group {name!r}; it has: {there}")

    def _changed_meanwhile(self, cluster: RayCluster, group: WorkerGroup) -> str:
        return (
            f"worker group {group.group_name!r} of RayCluster {self._name} changed since it was read; "
            f"{FIELD} was last written by {cluster.last_manager() or 'an unknown manager'}"
        )


def ray_cluster_actuators(kube: Kubernetes) -> Callable[[RayClusterGroups], RayClusterActuator]:
    return lambda application: RayClusterActuator(kube, application)


def _scaling_patch(cluster: RayCluster, index: int, replicas: int, workers: list[Worker]) -> Iterator[dict[str, Any]]:
    """Yield operations that set the count, and fail if the group moved in the list or changed since the last read."""
    group = cluster.spec.worker_group_specs[index]
    at = f"/spec/workerGroupSpecs/{index}"
    yield {"op": "test", "path": f"{at}/groupName", "value": group.group_name}
    if cluster.autoscaled:
        replaced = {"minReplicas": group.min_replicas, "maxReplicas": group.max_replicas}
    else:
        replaced = {"replicas": group.replicas}
    for field, before in replaced.items():
        yield {"op": "test", "path": f"{at}/{field}", "value": before}
        yield {"op": "replace", "path": f"{at}/{field}", "value": replicas}
    leaving = () if cluster.autoscaled else workers_to_give_up(group, workers, keep=replicas)
    if leaving or (group.scale_strategy.workers_to_delete and not cluster.autoscaled):
        yield {"op": "add", "path": f"{at}/scaleStrategy", "value": {"workersToDelete": list(leaving)}}


def _notes(cluster: RayCluster, groups: list[WorkerGroup], *, service: str | None) -> Iterator[str]:
    """Yield the conditions that invalidate the counts or may reset them."""
    if appliers := cluster.appliers(ours=FIELD_MANAGER):
        yield f"{FIELD} is applied by {', '.join(appliers)}, which keeps it"
    for owner in cluster.metadata.owner_references:
        if owner.controller and (owner.kind, owner.name) != ("RayService", service):
            yield f"{owner.kind} {owner.name} owns the RayCluster and may reset its counts"
    if cluster.spec.managed_by not in (None, "", KUBERAY):
        yield f"spec.managedBy is {cluster.spec.managed_by}: the KubeRay operator does not reconcile the cluster"
    if cluster.spec.suspend:
        yield "spec.suspend is on: no worker runs"
    yield from (f"worker group {group.group_name} is suspended" for group in groups if group.suspend)
    for condition in cluster.status.conditions:
        if (condition.type, condition.status) in {("ReplicaFailure", "True"), ("HeadPodReady", "False")}:
            yield f"KubeRay reports {condition.type} {condition.status}: {condition.message or condition.reason}"
