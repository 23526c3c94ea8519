"""The actuator of a Ray Serve application: one deployment per part, scaled through the external scale API.

Serve refuses the scale API (412) unless the application's config has `external_scaler_enabled: true`, which turns
Serve's own autoscaler off for the application.  Otherwise the count is declared in that config
(`deploy.actuators.ray_serve.config`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import httpx

from api.schemas.targets import RayServeApplication
from deploy.actuators.base import ConfigWrite, DeploymentState, Observation, Step
from deploy.actuators.ray_serve.client import ApplicationDetails, DeploymentDetails, ServeClient
from deploy.actuators.ray_serve.config import change_num_replicas, change_user_config
from deploy.common.errors import ActuationError

HEALTHY_STATUSES = {"RUNNING", "DEPLOYING"}
HEALTHY = "HEALTHY"  # of a deployment; replicas that stop do not count


@dataclass(frozen=True, slots=True)
class RayServeActuator:
    """Drives one Serve application."""

    http: httpx.AsyncClient
    application: RayServeApplication

    async def observe(self) -> Observation:
        """Read counts by part, and every deployment's configuration."""
        found = (await self._serve.read()).application(self.application.application)
        parts = {part: self._deployment(found, name) for part, name in sorted(self.application.deployments.items())}
        return Observation(
            requested={part: deployment.target_num_replicas for part, deployment in parts.items()},
            running={part: deployment.running for part, deployment in parts.items()},
            note=_note(found),
            deployments={name: _state(deployment) for name, deployment in found.deployments.items()},
        )

    async def apply(self, change: Step | ConfigWrite) -> None:
        serve, application = self._serve, self.application.application
        if isinstance(change, ConfigWrite):
            await change_user_config(serve, application=application, write=change)
            return
        deployment = self.application.deployments[change.part]
        async with serve.lock:
            scaled = await serve.scale(application=application, deployment=deployment, replicas=change.replicas_after)
        if not scaled:
            await change_num_replicas(
                serve,
                application=application,
                deployment=deployment,
                before=change.replicas_before,
                after=change.replicas_after,
            )

    @property
    def _serve(self) -> ServeClient:
        return ServeClient(self.http, str(self.application.dashboard_url))

    def _deployment(self, found: ApplicationDetails, name: str) -> DeploymentDetails:
        if (deployment := found.deployments.get(name)) is None:
            listed = ", ".join(sorted(found.deployments)) or "none"
            raise ActuationError(
                f"application {self.application.application!r} ({found.status}) has no deployment {name!r}; "
                f"it has: {listed}"
            )
        return deployment


def ray_serve_actuators(http: httpx.AsyncClient) -> Callable[[RayServeApplication], RayServeActuator]:
    """Return a factory of actuators that share one pool of connections."""
    return lambda application: RayServeActuator(http, application)


def _state(deployment: DeploymentDetails) -> DeploymentState:
    return DeploymentState(
        requested=deployment.target_num_replicas,
        user_config=deployment.user_config,
        healthy=deployment.status == HEALTHY,
        replicas={replica.replica_id: replica.state for replica in deployment.replicas},
    )


def _note(application: ApplicationDetails) -> str | None:
    if application.status not in HEALTHY_STATUSES:
        return f"Serve reports {application.status}: {application.message or 'no reason given'}"
    if not application.external_scaler_enabled:
        return "external_scaler_enabled is off in the application's Serve config: counts are declared there"
    return None
