"""The client of one Ray dashboard's Serve REST API.

    GET  /api/serve/applications/                                       the declared and the running applications
    PUT  /api/serve/applications/                                       declare all applications
    POST /api/v1/applications/{app}/deployments/{deployment}/scale      {"target_num_replicas": n}

For some seconds after its start the dashboard returns 500, so requests that may be repeated are retried.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote
from weakref import WeakValueDictionary

import httpx
import stamina
import structlog
from pydantic import BaseModel, Field, ValidationError

from deploy.actuators.base import UserConfig
from deploy.common.errors import ActuationError, UnreachableError
from deploy.common.text import reason_of

log = structlog.get_logger()

TIMEOUT: Final = httpx.Timeout(10.0, connect=3.0)
ATTEMPTS: Final = 3
APPLICATIONS: Final = "api/serve/applications/"

# A replica on a draining node (PENDING_MIGRATION) still serves, but no other replica may stop because of it.
RUNNING: Final = "RUNNING"

_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


class ReplicaDetails(BaseModel):
    replica_id: str = ""
    state: str


class DeploymentDetails(BaseModel):
    """A deployment as it runs; `deployment_config` holds the options in force, from code or from the Serve config."""

    target_num_replicas: int
    status: str = ""
    deployment_config: dict[str, Any] = Field(default_factory=dict)
    replicas: list[ReplicaDetails] = Field(default_factory=list)

    @property
    def running(self) -> int:
        return sum(replica.state == RUNNING for replica in self.replicas)

    @property
    def user_config(self) -> UserConfig:
        return self.deployment_config.get("user_config") or {}


class ApplicationDetails(BaseModel):
    """An application; `deployed_app_config` is null where code deployed it instead of a Serve config."""

    status: str
    message: str = ""
    external_scaler_enabled: bool = False
    deployed_app_config: dict[str, Any] | None = None
    deployments: dict[str, DeploymentDetails] = Field(default_factory=dict)

    def deployment(self, name: str) -> DeploymentDetails:
        if (found := self.deployments.get(name)) is None:
            raise ActuationError(f"Serve has no deployment {name!r}; it has: {_listed(self.deployments)}")
        return found


class ServeDetails(BaseModel):
    """The state of one Serve instance, as far as this package uses it."""

    model_config = {"extra": "allow"}

    applications: dict[str, ApplicationDetails]

    def application(self, name: str) -> ApplicationDetails:
        if (found := self.applications.get(name)) is None:
            raise ActuationError(f"Serve has no application {name!r}; it has: {_listed(self.applications)}")
        return found


@dataclass(frozen=True, slots=True)
class ServeClient:
    http: httpx.AsyncClient
    dashboard_url: str

    @property
    def lock(self) -> asyncio.Lock:
        """Return the lock of a dashboard, held while Serve's config is read and written back, and while scaling."""
        return _locks.setdefault(self.dashboard_url.rstrip("/"), asyncio.Lock())

    async def read(self) -> ServeDetails:
        response = self._ok(await self._call("GET", APPLICATIONS))
        try:
            return ServeDetails.model_validate_json(response.content)
        except ValidationError as error:
            raise ActuationError(
                f"{self.dashboard_url} does not respond as Ray Serve does: {error.errors()[0]['msg']}"
            ) from error

    async def scale(self, *, application: str, deployment: str, replicas: int) -> bool:
        """Scale through the external scale API; False where the application's config does not enable it."""
        path = f"api/v1/applications/{quote(application, safe='')}/deployments/{quote(deployment, safe='')}/scale"
        response = await self._call("POST", path, json={"target_num_replicas": replicas})
        if response.status_code == HTTPStatus.PRECONDITION_FAILED:
            return False
        if response.status_code == HTTPStatus.NOT_FOUND:
            raise ActuationError(f"Serve has no deployment {deployment!r} in application {application!r}")
        self._ok(response)
        return True

    async def declare(self, body: Mapping[str, Any]) -> None:
        """Put the Serve config.  Not retried: by the next attempt the config that `body` was made from may be old."""
        self._ok(await self._once("PUT", APPLICATIONS, json=body))

    async def _call(self, method: str, path: str, *, json: Any = None) -> httpx.Response:
        """Send a request that may be repeated, and return any response but 5xx."""
        async for attempt in attempts():
            with attempt:
                return await self._once(method, path, json=json)
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, method: str, path: str, *, json: Any = None) -> httpx.Response:
        """Return any response but 5xx.  Raise UnreachableError for 5xx and for no response."""
        url = f"{self.dashboard_url.rstrip('/')}/{path}"
        try:
            response = await self.http.request(method, url, json=json, timeout=TIMEOUT)
        except httpx.RequestError as error:
            raise UnreachableError(f"{self.dashboard_url} does not respond: {reason_of(error)}") from error
        if response.is_server_error:
            raise UnreachableError(self._refusal(response))
        return response

    def _ok(self, response: httpx.Response) -> httpx.Response:
        if response.status_code != HTTPStatus.OK:
            raise ActuationError(self._refusal(response))
        return response

    def _refusal(self, response: httpx.Response) -> str:
        # Readers of the target see the status alone: the answer may be that of any service of the network.
        log.warning("serve_refused", url=self.dashboard_url, status=response.status_code, reason=_error_in(response))
        return f"{self.dashboard_url} returned {response.status_code}"


def attempts() -> AsyncIterator[stamina.Attempt]:
    """Yield attempts of an operation that is repeated while Serve cannot be reached."""
    return stamina.retry_context(
        on=UnreachableError, attempts=ATTEMPTS, wait_initial=0.2, wait_jitter=0.2, wait_max=2.0
    ).__aiter__()


def _error_in(response: httpx.Response) -> str:
    """Return Serve's `error` member, else the last line: a traceback ends with its cause."""
    try:
        return str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        lines = response.text.strip().splitlines()
        return lines[-1][:200] if lines else "nothing"


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)) or "none"
