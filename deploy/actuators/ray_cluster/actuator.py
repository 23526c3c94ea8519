"""Worker groups of a KubeRay RayCluster, one for each part of a target, scaled through the Kubernetes API.

    GET   .../rayclusters/{cluster}      what is asked for, and who manages it
    GET   .../pods?labelSelector=...     which workers are ready
    PATCH .../rayclusters/{cluster}      a JSON patch that tests the group's name and the counts it replaces

`spec.workerGroupSpecs` is an atomic list in KubeRay's CRD: by server-side apply one owns all of it, pod templates
included, or nothing.  So the one number is patched, under the field manager `fleetwright`; where another manager holds
the list by server-side apply, it is left to that manager and the status names it.

With the in-tree autoscaler on, `replicas` is the autoscaler's: `minReplicas` and `maxReplicas` are both set to what is
wanted.  Without it, which workers go is KubeRay's choice unless told, and it takes any; so they are named in
`scaleStrategy.workersToDelete`, those that lose least first.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from api.schemas.targets import RayClusterGroups
from deploy.actuators.base import Observation, Replicas, Step
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
from deploy.common.errors import ActuationError, PlanUnusableError
from deploy.common.kubernetes_client import FIELD_MANAGER, Kubernetes, RefusedError
from deploy.controller.rollout import is_settled, next_steps

FIELD = "spec.workerGroupSpecs"

T = TypeVar("T", bound=BaseModel)


class _Pods(BaseModel):
    items: list[Worker]


@dataclass(frozen=True, slots=True)
class RayClusterActuator:
    """Drives the worker groups of one RayCluster."""

    kube: Kubernetes
    application: RayClusterGroups

    async def observe(self) -> Observation:
        """Read replica counts by part."""
        cluster = await self._read()
        workers = await self._workers()
        found = {gpu: self._group(cluster, name)[1] for gpu, name in sorted(self.application.groups.items())}
        return Observation(
            asked={gpu: group.asked for gpu, group in found.items()},
            running={gpu: running_replicas(group, workers) for gpu, group in found.items()},
            allowed={} if cluster.autoscaled else {gpu: (g.min_replicas, g.max_replicas) for gpu, g in found.items()},
            note="; ".join(_notes(cluster, list(found.values()))) or None,
        )

    def plan_changes(self, *, wanted: Replicas, observation: Observation, max_step: int) -> tuple[Step, ...]:
        """Make before break; nothing at all of a plan that goes outside a group's bounds."""
        for gpu, count in sorted(wanted.items()):
            least, most = observation.allowed.get(gpu, (count, count))
            if not least <= count <= most:
                group = self.application.groups[gpu]
                raise PlanUnusableError(
                    f"the plan has {count} {gpu}: {FIELD}[{group}].replicas of RayCluster {self._name} allows "
                    f"{least} to {most}, its minReplicas and maxReplicas"
                )
        return next_steps(wanted=wanted, observation=observation, max_step=max_step)

    async def apply(self, step: Step) -> None:
        """Patch the step's count in, if it is what it was when the step was made."""
        cluster = await self._read()
        if appliers := cluster.appliers(ours=FIELD_MANAGER):
            raise ActuationError(
                f"{FIELD} of RayCluster {self._name} is applied by {', '.join(appliers)}, and not taken from it: "
                "scale there, or let it create the cluster and no longer apply that list"
            )
        index, group = self._group(cluster, self.application.groups[step.gpu])
        if group.asked == step.replicas_after:
            return
        if group.asked != step.replicas_before:
            raise ActuationError(self._changed_meanwhile(cluster, group))
        workers = [] if cluster.autoscaled else await self._workers()
        try:
            await self.kube.patch(self._path, list(_scaling_patch(cluster, index, step.replicas_after, workers)))
        except RefusedError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
            now = await self._read()
            raise ActuationError(f"{self._changed_meanwhile(now, group)}: {error}") from error

    def verify(self, *, wanted: Replicas, observation: Observation) -> bool:
        """Exactly the wanted replicas are asked for and ready."""
        return is_settled(wanted=wanted, observation=observation)

    @property
    def _name(self) -> str:
        return f"{self.application.namespace}/{self.application.cluster}"

    @property
    def _path(self) -> str:
        return f"/apis/ray.io/v1/namespaces/{self.application.namespace}/rayclusters/{self.application.cluster}"

    async def _read(self) -> RayCluster:
        try:
            return _parsed(RayCluster, await self.kube.get(self._path))
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            raise ActuationError(f"there is no RayCluster {self._name}: {error}") from error

    async def _workers(self) -> list[Worker]:
        selector = f"{CLUSTER_LABEL}={self.application.cluster},{NODE_TYPE_LABEL}=worker"
        path = f"/api/v1/namespaces/{self.application.namespace}/pods"
        return _parsed(_Pods, await self.kube.get(path, labelSelector=selector)).items

    def _group(self, cluster: RayCluster, name: str) -> tuple[int, WorkerGroup]:
        """The group and its place in the list."""
        groups = cluster.spec.worker_group_specs
        for index, group in enumerate(groups):
            if group.group_name == name:
                return index, group
        there = ", ".join(sorted(group.group_name for group in groups)) or "none"
        raise ActuationError(f"RayCluster {self._name} has no worker group {name!r}; it has: {there}")

    def _changed_meanwhile(self, cluster: RayCluster, group: WorkerGroup) -> str:
        return (
            f"worker group {group.group_name!r} of RayCluster {self._name} was changed while it was looked at; "
            f"{FIELD} was last written by {cluster.last_manager() or 'an unknown manager'}"
        )


def ray_cluster_actuators(kube: Kubernetes) -> Callable[[RayClusterGroups], RayClusterActuator]:
    """A maker of actuators that share one connection to the API server."""
    return lambda application: RayClusterActuator(kube, application)


def _scaling_patch(cluster: RayCluster, index: int, replicas: int, workers: list[Worker]) -> Iterator[dict[str, Any]]:
    """Operations that set the count, or fail when the group is not at its place or not as it was read."""
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


def _notes(cluster: RayCluster, groups: list[WorkerGroup]) -> Iterator[str]:
    """What keeps the counts from being what they seem, or from staying."""
    if appliers := cluster.appliers(ours=FIELD_MANAGER):
        yield f"{FIELD} is applied by {', '.join(appliers)}: it is not taken from it"
    for owner in cluster.metadata.owner_references:
        if owner.controller:
            yield f"{owner.kind} {owner.name} owns the RayCluster and may set its counts back"
    if cluster.spec.managed_by not in (None, "", KUBERAY):
        yield f"spec.managedBy is {cluster.spec.managed_by}: the KubeRay operator leaves the cluster alone"
    if cluster.spec.suspend:
        yield "spec.suspend is on: no worker runs"
    yield from (f"worker group {group.group_name} is suspended" for group in groups if group.suspend)
    for condition in cluster.status.conditions:
        if (condition.type, condition.status) in {("ReplicaFailure", "True"), ("HeadPodReady", "False")}:
            yield f"KubeRay says {condition.type} {condition.status}: {condition.message or condition.reason}"


def _parsed(model: type[T], document: Any) -> T:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise ActuationError(
            f"the API server does not describe a {model.__name__} as KubeRay does: {error.errors()[0]['msg']}"
        ) from error
