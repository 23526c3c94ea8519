"""One deployment's `user_config` key or count, changed in Ray Serve's declared configuration; all else stays as it is.

    GET /api/serve/applications/      what is declared, and what was scaled since
    PUT /api/serve/applications/      all declared applications once more

Serve takes only the whole: what a PUT leaves out is deleted or set back.  So all is read just before, and written
back but for the one key.  A deployment whose options differ gets the declared replica count, so the count that it was
scaled to since goes in with them; 0 cannot be declared, so it is declared with 1 and scaled to 0 at once.  Serve has no
version to write under: a change that somebody else makes between our two calls is lost, which is why they lie close
together and why all writers of one process take turns (`serve_lock`).

Only `user_config` differs, so Serve calls `reconfigure` of the running replicas and restarts none.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import httpx
from pydantic import BaseModel, Field, JsonValue, ValidationError

from deploy.actuators.ray_serve.client import APPLICATIONS, ServeHttp, attempts, scale_path
from deploy.common.errors import ActuationError, OvertakenError

# What Serve runs under; a PUT without them means their defaults.
_INSTANCE_KEYS = ("proxy_location", "http_options", "grpc_options", "target_capacity")
_REDACTED = "<redacted>"  # what Ray shows in place of a secret; writing it back would lose the secret

UserConfig = Mapping[str, JsonValue]
_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


class ServedReplica(BaseModel):
    """A replica as Serve lists it."""

    replica_id: str
    state: str


class ServedDeployment(BaseModel):
    """A deployment as it runs; `deployment_config` holds the options in force, wherever they came from."""

    target_num_replicas: int
    status: str = ""
    deployment_config: dict[str, Any] = Field(default_factory=dict)
    replicas: list[ServedReplica] = Field(default_factory=list)

    @property
    def user_config(self) -> UserConfig:
        """As the replicas are given it."""
        return self.deployment_config.get("user_config") or {}


class ServedApplication(BaseModel):
    """An application; `deployed_app_config` is null where code deployed it, not a declaration."""

    status: str
    external_scaler_enabled: bool = False
    deployed_app_config: dict[str, Any] | None = None
    deployments: dict[str, ServedDeployment] = Field(default_factory=dict)

    def deployment(self, name: str) -> ServedDeployment:
        """By name; ActuationError where there is none."""
        if (found := self.deployments.get(name)) is None:
            raise ActuationError(f"Serve has no deployment {name!r}; it has: {_listed(self.deployments)}")
        return found


class Served(BaseModel):
    """Everything that one Serve says of itself, as far as it matters here."""

    model_config = {"extra": "allow"}

    applications: dict[str, ServedApplication]

    def application(self, name: str) -> ServedApplication:
        """By name; ActuationError where there is none."""
        if (found := self.applications.get(name)) is None:
            raise ActuationError(f"Serve has no application {name!r}; it has: {_listed(self.applications)}")
        return found


def serve_lock(dashboard_url: str) -> asyncio.Lock:
    """Held while a Serve's configuration is read and written back; whoever scales its replicas may hold it too."""
    return _locks.setdefault(dashboard_url.rstrip("/"), asyncio.Lock())


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """One Serve's declared configuration."""

    http: httpx.AsyncClient
    dashboard_url: str

    async def read(self) -> Served:
        """What is declared and what runs, now."""
        response = self._serve.ok(await self._serve.call("GET", APPLICATIONS))
        try:
            return Served.model_validate_json(response.content)
        except ValidationError as error:
            problem = error.errors()[0]["msg"]
            raise ActuationError(f"{self.dashboard_url} does not answer as Ray Serve does: {problem}") from error

    async def change_user_config(
        self,
        *,
        application: str,
        deployment: str,
        key: str,
        value: JsonValue,
        seen: UserConfig | None = None,
    ) -> None:
        """Set the key, or take it away where `value` is None.

        With `seen`, the user_config that the change was decided on, nothing is written if another one is there by now.
        """
        async with serve_lock(self.dashboard_url):
            served = await self.read()
            before = served.application(application).deployment(deployment).user_config
            if seen is not None and dict(before) != dict(seen):
                raise OvertakenError(f"the user_config of {deployment!r} was changed a moment ago; nothing was written")
            after = {name: held for name, held in before.items() if name != key}
            if value is not None:
                after[key] = value
            if after == dict(before):
                return
            await self._put(declaration(served, application, deployment, after))
            if _scaled_count(served.application(application), deployment) == 0:
                path = scale_path(application=application, deployment=deployment)
                self._serve.ok(await self._serve.call("POST", path, json={"target_num_replicas": 0}))

    async def change_num_replicas(self, *, application: str, deployment: str, before: int, after: int) -> None:
        """Declare another number of replicas, unless it is no longer `before` that Serve is told to run.

        Every try begins with reading: what was read for one that failed may be old by the next.
        """
        async for attempt in attempts():
            with attempt:
                async with serve_lock(self.dashboard_url):
                    await self._redeclare(application, deployment, before, after)

    async def _redeclare(self, application: str, deployment: str, before: int, after: int) -> None:
        served = await self.read()
        found = served.application(application).deployment(deployment)
        _check_declarable(served, deployment, found, after)
        asked = found.target_num_replicas
        if asked == after:
            return
        if asked != before:
            raise ActuationError(f"{deployment!r} was scaled to {asked} a moment ago; nothing was written")
        # Serve passes over what it has been told already, although the count was scaled since: so first what runs.
        counts = (asked, after) if found.deployment_config.get("num_replicas") == after else (after,)
        for count in counts:
            body = redeclaration(await self.read(), application, deployment, {"num_replicas": count})
            await self._put(body)

    @property
    def _serve(self) -> ServeHttp:
        return ServeHttp(self.http, self.dashboard_url)

    async def _put(self, body: Mapping[str, Any]) -> None:
        """Once: by the next time what was read may be old."""
        self._serve.ok(await self._serve.once("PUT", APPLICATIONS, json=body))


def declaration(served: Served, application: str, deployment: str, user_config: UserConfig) -> dict[str, Any]:
    """The body of the PUT: all that is declared, with this deployment's user_config."""
    changed: dict[str, Any] = {"user_config": dict(user_config)}
    if (count := _scaled_count(served.application(application), deployment)) is not None:
        changed["num_replicas"] = max(1, count)
    return redeclaration(served, application, deployment, changed)


def redeclaration(served: Served, application: str, deployment: str, changed: Mapping[str, Any]) -> dict[str, Any]:
    """The body of the PUT: all that is declared, with these options of one deployment."""
    declared = {
        name: found.deployed_app_config
        for name, found in served.applications.items()
        if found.deployed_app_config is not None
    }
    if application not in declared:
        raise ActuationError(
            f"application {application!r} was deployed by code; only what a Serve config declares can be changed"
        )
    if hidden := [name for name, config in declared.items() if _REDACTED in repr(config)]:
        raise ActuationError(f"Ray hides parts of the config of {hidden[0]!r}, so it cannot be written back")
    declared[application] = _with_options(declared[application], deployment, changed)
    held = served.model_extra or {}
    instance = {key: held[key] for key in _INSTANCE_KEYS if held.get(key) is not None}
    return instance | {"applications": list(declared.values())}


def _with_options(declared: Mapping[str, Any], deployment: str, changed: Mapping[str, Any]) -> dict[str, Any]:
    entries = {entry["name"]: entry for entry in declared.get("deployments") or ()}
    if deployment not in entries and declared.get("runtime_env"):
        # Serve would merge it into the options of a deployment that is newly listed, and restart its replicas for it.
        raise ActuationError(
            f"deployments of application {declared.get('name')!r}: must list {deployment!r} in the Serve config (its "
            "name is enough), because the application has a runtime_env"
        )
    entries[deployment] = {"name": deployment, **entries.get(deployment, {}), **changed}
    return {**declared, "deployments": list(entries.values())}


def _check_declarable(served: Served, deployment: str, found: ServedDeployment, count: int) -> None:
    """Whether a declared count is what Serve would run."""
    if found.deployment_config.get("autoscaling_config") is not None:
        raise ActuationError(
            f"{deployment!r} is scaled by Serve's own autoscaler; its Serve config must say num_replicas in place of "
            "autoscaling_config, or the application's external_scaler_enabled: true"
        )
    if count < 1:
        raise ActuationError(
            f"{deployment!r} cannot be declared with {count} replicas; allowed: 1 or more, or with "
            "external_scaler_enabled: true in the application's Serve config 0 as well"
        )
    if (capacity := (served.model_extra or {}).get("target_capacity")) not in (None, 100):
        raise ActuationError(f"Serve runs {capacity:g} % of what is declared (target_capacity); allowed: 100 or none")


def _scaled_count(found: ServedApplication, deployment: str) -> int | None:
    """The count to keep; None where Serve itself decides it."""
    return found.deployment(deployment).target_num_replicas if found.external_scaler_enabled else None


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)) or "none"
