"""Which actuator drives which kind of target, and which kinds this process can reach.

A kind without a maker is not an error: a controller outside Kubernetes still drives Serve applications, and its report
on other targets states the missing access.
"""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx

from api.schemas.applications import (
    Application,
    KubernetesScale,
    RayClusterGroups,
    RayServeApplication,
    RayServiceGroups,
    RayTrainRun,
)
from deploy.actuators.base import Actuator
from deploy.actuators.kubernetes_scale.actuator import kubernetes_scale_actuators
from deploy.actuators.ray_cluster.actuator import ray_cluster_actuators
from deploy.actuators.ray_cluster.service import ray_service_actuators
from deploy.actuators.ray_serve.actuator import ray_serve_actuators
from deploy.common.errors import ActuationError
from deploy.common.kubernetes_client import KubernetesAccess, kubernetes_server

ActuatorFactory = Callable[[Application], Actuator]


@dataclass(frozen=True, slots=True, kw_only=True)
class Actuators:
    """Actuator factories, one per kind of target; None where this process has no access."""

    ray_serve: Callable[[RayServeApplication], Actuator] | None = None
    ray_cluster: Callable[[RayClusterGroups], Actuator] | None = None
    ray_service: Callable[[RayServiceGroups], Actuator] | None = None
    ray_train: Callable[[RayTrainRun], Actuator] | None = None
    kubernetes_scale: Callable[[KubernetesScale], Actuator] | None = None

    def __call__(self, application: Application) -> Actuator:
        """Return the actuator of one target.  Raise ActuationError when this process cannot drive its kind."""
        factory: ActuatorFactory | None = getattr(self, application.kind)  # the fields have the names of the kinds
        if factory is None:
            raise ActuationError(f"this controller has no access to {_REACHED_THROUGH[application.kind]}")
        return factory(application)


_REACHED_THROUGH = {
    "ray_serve": "Ray Serve",
    "ray_cluster": "Kubernetes",
    "ray_service": "Kubernetes",
    "ray_train": "the run's Ray cluster",
    "kubernetes_scale": "Kubernetes",
}


@asynccontextmanager
async def reachable_actuators(
    http: httpx.AsyncClient, *, kubernetes: KubernetesAccess | None = None
) -> AsyncIterator[Actuators]:
    """Yield actuators for every kind that this process can reach, and close their connections at the end.

    UnusableSourceError where `kubernetes` is given and cannot be reached.
    """
    async with AsyncExitStack() as connections:
        kube = None if kubernetes is None else await connections.enter_async_context(kubernetes_server(kubernetes))
        yield Actuators(
            ray_serve=ray_serve_actuators(http),
            ray_cluster=None if kube is None else ray_cluster_actuators(kube),
            ray_service=None if kube is None else ray_service_actuators(kube),
            ray_train=_ray_train_if_joined(),
            kubernetes_scale=None if kube is None else kubernetes_scale_actuators(kube, http),
        )


def _ray_train_if_joined() -> Callable[[RayTrainRun], Actuator] | None:
    """Only a process of the run's Ray cluster reaches a run; such a process has loaded Ray."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    from deploy.actuators.ray_train import ray_train_actuators  # noqa: PLC0415 - an extra

    return ray_train_actuators()
