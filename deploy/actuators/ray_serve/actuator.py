"""The actuator of a Ray Serve application: one deployment per part, scaled through the external scale API.

Serve refuses the scale API (412) unless the application's config has `external_scaler_enabled: true`, which turns
Serve's own autoscaler off for the application.  Otherwise the count is declared in that config.

A PUT replaces the whole configuration: Serve deletes or resets what it leaves out.  So each change reads the
configuration just before and writes it back with one difference.  Serve resets a deployment whose options differ to its
declared count, so the count it was scaled to goes in with them; 0 cannot be declared, so such a deployment is declared
with 1 and scaled to 0 at once.  The configuration has no version: a change that another client makes between our GET
and PUT is lost, so the two calls are close together and writers of one process take turns (`ServeClient.lock`).

A change of `user_config` only makes Serve call `reconfigure` in the running replicas; none restarts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from api.schemas.applications import RayServeApplication
from deploy.actuators.base import Change, ConfigWrite, DeploymentState, Drain, TargetSnapshot, UserConfig
from deploy.actuators.ray_serve.client import (
    ApplicationDetails,
    DeploymentDetails,
    ServeClient,
    ServeDetails,
    attempts,
)
from deploy.common.errors import ActuationError, OvertakenError

# Options of the Serve instance; a PUT without them resets them to their defaults.
_INSTANCE_KEYS = ("proxy_location", "http_options", "grpc_options", "target_capacity")
_REDACTED = "<redacted>"  # Ray shows this in place of a secret; writing it back would lose the secret
HEALTHY_STATUSES = {"RUNNING", "DEPLOYING"}
HEALTHY = "HEALTHY"  # of a deployment; replicas that stop do not count


async def change_user_config(serve: ServeClient, *, application: str, write: ConfigWrite) -> None:
    """Set or remove one key.  Raise OvertakenError where the user_config is no longer `write.expected`."""
    async with serve.lock:
        details = await serve.read()
        found = details.application(application)
        before = found.deployment(write.deployment).user_config
        if write.expected is not None and dict(before) != dict(write.expected):
            raise OvertakenError(f"the user_config of {write.deployment!r} changed meanwhile; nothing was written")
        after = {name: value for name, value in before.items() if name != write.key}
        if write.value is not None:
            after[write.key] = write.value
        if after == dict(before):
            return
        await serve.declare(_with_user_config(details, application, write.deployment, after))
        if _scaled_count(found, write.deployment) == 0:
            await serve.scale(application=application, deployment=write.deployment, replicas=0)


async def change_num_replicas(
    serve: ServeClient, *, application: str, deployment: str, before: int, after: int
) -> None:
    """Declare another replica count, only while Serve's requested count is `before`.

    Each attempt reads the configuration again: what a failed attempt read may be old.
    """
    async for attempt in attempts():
        with attempt:
            async with serve.lock:
                await _redeclare(serve, application, deployment, before, after)


@dataclass(frozen=True, slots=True)
class RayServeActuator:
    http: httpx.AsyncClient
    application: RayServeApplication

    async def observe(self) -> TargetSnapshot:
        found = (await self._serve.read()).application(self.application.application)
        parts = {part: self._deployment(found, name) for part, name in sorted(self.application.deployments.items())}
        return TargetSnapshot(
            requested={part: deployment.target_num_replicas for part, deployment in parts.items()},
            running={part: deployment.running for part, deployment in parts.items()},
            note=_note(found),
            deployments={name: _state(deployment) for name, deployment in found.deployments.items()},
        )

    async def apply(self, change: Change) -> None:
        serve, application = self._serve, self.application.application
        if isinstance(change, ConfigWrite):
            await change_user_config(serve, application=application, write=change)
            return
        if isinstance(change, Drain):
            raise ActuationError("Ray Serve drains replicas itself")
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
    return lambda application: RayServeActuator(http, application)


async def _redeclare(serve: ServeClient, application: str, deployment: str, before: int, after: int) -> None:
    details = await serve.read()
    found = details.application(application).deployment(deployment)
    _check_declarable(details, deployment, found, after)
    requested = found.target_num_replicas
    if requested == after:
        return
    if requested != before:
        raise ActuationError(f"{deployment!r} was scaled to {requested} meanwhile; nothing was written")
    # Serve ignores a count that it already has in its config, although the deployment was scaled since.  So the running
    # count is declared first.
    counts = (requested, after) if found.deployment_config.get("num_replicas") == after else (after,)
    for count in counts:
        await serve.declare(_with_options(await serve.read(), application, deployment, {"num_replicas": count}))


def _with_user_config(
    details: ServeDetails, application: str, deployment: str, user_config: UserConfig
) -> dict[str, Any]:
    options: dict[str, Any] = {"user_config": dict(user_config)}
    if (count := _scaled_count(details.application(application), deployment)) is not None:
        options["num_replicas"] = max(1, count)
    return _with_options(details, application, deployment, options)


def _with_options(
    details: ServeDetails, application: str, deployment: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the body of the PUT: the declared configuration with these options of one deployment."""
    declared = {
        name: found.deployed_app_config
        for name, found in details.applications.items()
        if found.deployed_app_config is not None
    }
    if application not in declared:
        raise ActuationError(
            f"application {application!r} was deployed by code; only what a Serve config declares can be changed"
        )
    if hidden := [name for name, config in declared.items() if _REDACTED in repr(config)]:
        raise ActuationError(f"Ray hides parts of the config of {hidden[0]!r}, so it cannot be written back")
    declared[application] = _application_with_options(declared[application], deployment, options)
    extra = details.model_extra or {}
    instance = {key: extra[key] for key in _INSTANCE_KEYS if extra.get(key) is not None}
    return instance | {"applications": list(declared.values())}


def _application_with_options(
    declared: Mapping[str, Any], deployment: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    entries = {entry["name"]: entry for entry in declared.get("deployments") or ()}
    if deployment not in entries and declared.get("runtime_env"):
        # Serve would merge the runtime_env into the options of a newly listed deployment and restart its replicas.
        raise ActuationError(
            f"deployments of application {declared.get('name')!r}: must list {deployment!r} in the Serve config (its "
            "name is enough), because the application has a runtime_env"
        )
    entries[deployment] = {"name": deployment, **entries.get(deployment, {}), **options}
    return {**declared, "deployments": list(entries.values())}


def _check_declarable(details: ServeDetails, deployment: str, found: DeploymentDetails, count: int) -> None:
    if found.deployment_config.get("autoscaling_config") is not None:
        raise ActuationError(
            f"{deployment!r} is scaled by Serve's own autoscaler; its Serve config must have num_replicas in place of "
            "autoscaling_config, or the application's external_scaler_enabled: true"
        )
    if count < 1:
        raise ActuationError(
            f"{deployment!r} cannot be declared with {count} replicas; allowed: 1 or more, or with "
            "external_scaler_enabled: true in the application's Serve config 0 as well"
        )
    if (capacity := (details.model_extra or {}).get("target_capacity")) not in (None, 100):
        raise ActuationError(
            f"Serve runs {capacity:g} % of the declared replicas (target_capacity); allowed: 100 or none"
        )


def _scaled_count(found: ApplicationDetails, deployment: str) -> int | None:
    """Return the count to keep; None where Serve itself decides it."""
    return found.deployment(deployment).target_num_replicas if found.external_scaler_enabled else None


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
