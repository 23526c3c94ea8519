"""Ray Serve by its REST API: a deployment for each part of a target, scaled by the external scale API.

    GET  /api/serve/applications/                                       what is asked for and what runs
    POST /api/v1/applications/{app}/deployments/{deployment}/scale      {"target_num_replicas": n}

Serve refuses to be scaled (412) unless the application's config says `external_scaler_enabled: true`, which takes
Serve's own autoscaler out of that application.  Where it says otherwise, the count is declared in that config
(`deploy.actuators.ray_serve.config`).  Both calls may be repeated: reading changes nothing and the replica count is
absolute.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httpx
from pydantic import BaseModel, ValidationError

from api.schemas.targets import RayServeApplication
from deploy.actuators.base import Observation, Replicas, Step
from deploy.actuators.ray_serve.client import APPLICATIONS, ServeHttp, scale_path
from deploy.actuators.ray_serve.config import ServeConfig, serve_lock
from deploy.common.errors import ActuationError
from deploy.controller.rollout import is_settled, next_steps

# A replica on a draining node (PENDING_MIGRATION) still serves, but it is no capacity to rest a removal on.
RUNNING = "RUNNING"
HEALTHY_STATUSES = {"RUNNING", "DEPLOYING"}


class _Replica(BaseModel):
    state: str


class _Deployment(BaseModel):
    target_num_replicas: int
    replicas: list[_Replica]

    @property
    def running(self) -> int:
        return Counter(replica.state for replica in self.replicas)[RUNNING]


class _Application(BaseModel):
    status: str
    message: str = ""
    external_scaler_enabled: bool = False
    deployments: dict[str, _Deployment]


class _ServeDetails(BaseModel):
    """The part of Serve's answer that matters here; it may hold more."""

    applications: dict[str, _Application]


@dataclass(frozen=True, slots=True)
class RayServeActuator:
    """Drives one Serve application."""

    http: httpx.AsyncClient
    application: RayServeApplication

    async def observe(self) -> Observation:
        """Read replica counts by part."""
        application = self._find(await self._read())
        found = {gpu: self._deployment(application, name) for gpu, name in sorted(self.application.deployments.items())}
        return Observation(
            asked={gpu: deployment.target_num_replicas for gpu, deployment in found.items()},
            running={gpu: deployment.running for gpu, deployment in found.items()},
            note=_note(application),
        )

    def plan_changes(self, *, wanted: Replicas, observation: Observation, max_step: int) -> tuple[Step, ...]:
        """Make before break."""
        return next_steps(wanted=wanted, observation=observation, max_step=max_step)

    async def apply(self, step: Step) -> None:
        """Ask Serve for the step's replicas."""
        application, deployment = self.application.application, self.application.deployments[step.gpu]
        path = scale_path(application=application, deployment=deployment)
        async with serve_lock(self._serve.url):
            response = await self._serve.call("POST", path, json={"target_num_replicas": step.replicas_after})
        if response.status_code == HTTPStatus.PRECONDITION_FAILED:
            await self._declare(step)
            return
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise ActuationError(f"Serve has no deployment {deployment!r} in application {application!r}")
        self._serve.ok(response)

    def verify(self, *, wanted: Replicas, observation: Observation) -> bool:
        """Exactly the wanted replicas run, and no others are asked for."""
        return is_settled(wanted=wanted, observation=observation)

    @property
    def _serve(self) -> ServeHttp:
        return ServeHttp(self.http, str(self.application.dashboard_url))

    async def _declare(self, step: Step) -> None:
        """Where the external scale API is off: by the application's own Serve config."""
        await ServeConfig(self.http, self._serve.url).change_num_replicas(
            application=self.application.application,
            deployment=self.application.deployments[step.gpu],
            before=step.replicas_before,
            after=step.replicas_after,
        )

    async def _read(self) -> _ServeDetails:
        response = self._serve.ok(await self._serve.call("GET", APPLICATIONS))
        try:
            return _ServeDetails.model_validate_json(response.content)
        except ValidationError as error:
            raise ActuationError(
                f"{self._serve.url} does not answer as Ray Serve does: {error.errors()[0]['msg']}"
            ) from error

    def _find(self, details: _ServeDetails) -> _Application:
        name = self.application.application
        if (application := details.applications.get(name)) is None:
            raise ActuationError(f"Serve has no application {name!r}; it has: {_listed(details.applications)}")
        return application

    def _deployment(self, application: _Application, name: str) -> _Deployment:
        if (deployment := application.deployments.get(name)) is None:
            raise ActuationError(
                f"application {self.application.application!r} ({application.status}) has no deployment {name!r}; "
                f"it has: {_listed(application.deployments)}"
            )
        return deployment


def ray_serve_actuators(http: httpx.AsyncClient) -> Callable[[RayServeApplication], RayServeActuator]:
    """A maker of actuators that share one pool of connections."""
    return lambda application: RayServeActuator(http, application)


def _note(application: _Application) -> str | None:
    if application.status not in HEALTHY_STATUSES:
        return f"Serve says {application.status}: {application.message or 'no reason given'}"
    if not application.external_scaler_enabled:
        return "external_scaler_enabled is off in the application's Serve config: counts are declared there"
    return None


def _listed(names: dict[str, Any]) -> str:
    return ", ".join(sorted(names)) or "none"
