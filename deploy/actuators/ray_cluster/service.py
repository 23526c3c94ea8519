"""The actuator of a KubeRay RayService: the worker groups of its active RayCluster.

    GET   .../rayservices/{service}      `status.activeServiceStatus.rayClusterName`
    ...                                  then as for that RayCluster

An upgrade creates another RayCluster with the counts of `spec.rayClusterConfig`, and makes it the active one once it
serves.  The operator ignores counts when it compares clusters, so a count on the active cluster stays until the next
upgrade; then the actuator reads the counts of the new cluster and scales that one.  The pending cluster is left alone:
the operator replaces it at any time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus

from api.schemas.applications import RayClusterGroups, RayServiceGroups
from deploy.actuators.base import Change, TargetSnapshot
from deploy.actuators.ray_cluster.actuator import RayClusterActuator
from deploy.common.errors import ActuationError, OvertakenError, UnreachableError
from deploy.common.kubernetes_client import Kubernetes, RefusedError
from deploy.common.kubernetes_objects import ObjectPart, parsed
from deploy.common.text import joined


class _ClusterStatus(ObjectPart):
    ray_cluster_name: str = ""


class _Status(ObjectPart):
    active_service_status: _ClusterStatus = _ClusterStatus()
    pending_service_status: _ClusterStatus = _ClusterStatus()


class _RayService(ObjectPart):
    status: _Status = _Status()

    @property
    def active(self) -> str:
        return self.status.active_service_status.ray_cluster_name

    @property
    def pending(self) -> str:
        return self.status.pending_service_status.ray_cluster_name


@dataclass(slots=True)
class RayServiceActuator:
    kube: Kubernetes
    application: RayServiceGroups
    observed: str | None = None  # the active cluster of the snapshot that a change follows from

    async def observe(self) -> TargetSnapshot:
        service = await self._read()
        self.observed = service.active
        snapshot = await self._of_cluster(service.active).observe()
        if not service.pending or service.pending == service.active:
            return snapshot
        upgrade = f"RayService {self._name} prepares RayCluster {service.pending}, which starts with its own counts"
        return replace(snapshot, warning=joined(snapshot.warning, upgrade))

    async def apply(self, change: Change) -> None:
        """Write to the active cluster.  OvertakenError where another one became active since the target was read."""
        active = (await self._read()).active
        if self.observed not in {None, active}:
            raise OvertakenError(f"RayService {self._name} switched from RayCluster {self.observed} to {active}")
        await self._of_cluster(active).apply(change)

    def _of_cluster(self, cluster: str) -> RayClusterActuator:
        groups = RayClusterGroups(
            namespace=self.application.namespace, cluster=cluster, groups=dict(self.application.groups)
        )
        return RayClusterActuator(self.kube, groups, service=self.application.service)

    async def _read(self) -> _RayService:
        service = await _read_service(self.kube, namespace=self.application.namespace, service=self.application.service)
        if not service.active:
            raise UnreachableError(f"RayService {self._name} has no active RayCluster yet")
        return service

    @property
    def _name(self) -> str:
        return f"{self.application.namespace}/{self.application.service}"


async def clusters_of_service(kube: Kubernetes, *, namespace: str, service: str) -> tuple[str, ...]:
    """Return the names of the active and the pending RayCluster, as far as there are any."""
    found = await _read_service(kube, namespace=namespace, service=service)
    return tuple(dict.fromkeys(name for name in (found.active, found.pending) if name))


async def _read_service(kube: Kubernetes, *, namespace: str, service: str) -> _RayService:
    try:
        found = await kube.get(f"/apis/ray.io/v1/namespaces/{namespace}/rayservices/{service}")
    except RefusedError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise ActuationError(f"there is no RayService {namespace}/{service}: {error}") from error
    return parsed(_RayService, found)


def ray_service_actuators(kube: Kubernetes) -> Callable[[RayServiceGroups], RayServiceActuator]:
    return lambda application: RayServiceActuator(kube, application)
