"""A Kubernetes client for actuators: objects as JSON, with timeouts, and errors with the server's message.

Server and credentials follow kubectl's rules: the given kubeconfig, else `KUBECONFIG`, else `~/.kube/config`, else the
pod's service account.  Reads are retried.  A patch is not: it tests what it replaces, so the response to a second one
would not show the result of the first.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

import stamina

from deploy.common.errors import ActuationError, UnreachableError
from deploy.common.text import member_or_line, reason_of
from deploy.common.topology_discovery import UnusableSourceError, kubeconfig_errors, kubeconfig_source, load_in_cluster

FIELD_MANAGER = "fleetwright"
TIMEOUT_S = 10.0
ATTEMPTS = 3
PAGE = 500  # objects per request of a list
MAX_PAGES = 2_000
JSON = "application/json"

Operations = Sequence[Mapping[str, Any]]  # of a JSON patch
Patch = Operations | Mapping[str, Any]  # a JSON patch, or a merge patch


class RefusedError(ActuationError):
    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class TooManyRequestsError(UnreachableError):
    """The server refuses for now: a disruption budget protects the pod, or the server has too much to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesAccess:
    """The cluster of a kubeconfig; None: the one that kubectl would use."""

    kubeconfig: Path | None = None


class Kubernetes(Protocol):
    """The part of the API that actuators use.  Both methods raise ActuationError; `path` begins with /api."""

    async def get(self, path: str, **query: str) -> Any:
        """Return the object at this path, as JSON."""

    async def patch(self, path: str, patch: Patch) -> None:
        """Apply a patch as field manager `fleetwright`."""


class KubernetesWriter(Kubernetes, Protocol):
    """The part of the API that also creates objects.  Both methods raise ActuationError."""

    async def patch_strategically(self, path: str, patch: Mapping[str, Any]) -> None:
        """Merge a patch; entries of lists are replaced one by one, by their key."""

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create an object, and return it as the server completed it."""


@dataclass(frozen=True, slots=True)
class KubernetesServer:
    """One API server behind the client of the `kubernetes` package."""

    client: Any  # kubernetes.aio.client.ApiClient, which has no type information
    renew: Callable[[], Awaitable[None]] | None = None  # reads credentials again

    async def get(self, path: str, **query: str) -> Any:
        async for attempt in stamina.retry_context(
            on=UnreachableError, attempts=ATTEMPTS, wait_initial=0.2, wait_jitter=0.2, wait_max=2.0
        ):
            with attempt:
                return await self._request("GET", path, query)
        raise AssertionError("the last attempt returns or raises")

    async def patch(self, path: str, patch: Patch) -> None:
        is_merge = isinstance(patch, Mapping)
        body = dict(patch) if isinstance(patch, Mapping) else [dict(operation) for operation in patch]
        kind = "application/merge-patch+json" if is_merge else "application/json-patch+json"
        await self._request("PATCH", path, {"fieldManager": FIELD_MANAGER}, body, kind=kind)

    async def patch_strategically(self, path: str, patch: Mapping[str, Any]) -> None:
        kind = "application/strategic-merge-patch+json"
        await self._request("PATCH", path, {"fieldManager": FIELD_MANAGER}, dict(patch), kind=kind)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create an object, such as a review of access, and return it as the server completed it."""
        return await self._request("POST", path, {}, dict(body))

    async def _request(
        self, method: str, path: str, query: Mapping[str, str], body: Any = None, *, kind: str = JSON
    ) -> Any:
        content = await self._content(method, path, query, body, kind)
        try:
            return json.loads(content)
        except ValueError as error:
            raise ActuationError(f"{self._host} returned no valid Kubernetes response: {error}") from error

    async def _content(self, method: str, path: str, query: Mapping[str, str], body: Any, kind: str) -> bytes:
        status, content = await self._exchange(method, path, query, body, kind)
        if status == HTTPStatus.UNAUTHORIZED and self.renew is not None:  # tokens of exec plugins and files expire
            await self.renew()
            status, content = await self._exchange(method, path, query, body, kind)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            raise TooManyRequestsError(f"{self._host} returned {status}: {_message_with_causes(content)}")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise UnreachableError(f"{self._host} returned {status}: {member_or_line(content, 'message')}")
        if status >= HTTPStatus.BAD_REQUEST:
            raise RefusedError(f"{self._host} returned {status}: {member_or_line(content, 'message')}", status=status)
        return content

    async def _exchange(
        self, method: str, path: str, query: Mapping[str, str], body: Any, kind: str
    ) -> tuple[int, bytes]:
        from aiohttp import ClientError  # noqa: PLC0415 - comes with the extra

        try:
            request = await self.client.param_serialize(
                method,
                path,
                query_params=list(query.items()),
                header_params={"Accept": JSON, "Content-Type": kind},
                body=body,
                auth_settings=["BearerToken"],
            )
            response = await self.client.call_api(*request, _request_timeout=TIMEOUT_S)
            return int(response.status), await response.read()
        except TimeoutError as error:
            raise UnreachableError(f"{self._host} did not respond within {TIMEOUT_S:g} s") from error
        except (ClientError, OSError) as error:
            raise UnreachableError(f"{self._host} does not respond: {reason_of(error)}") from error

    @property
    def _host(self) -> str:
        return str(self.client.configuration.host)


async def listed(kubernetes: Kubernetes, path: str, **query: str) -> AsyncIterator[Mapping[str, Any]]:
    """Iterate over the objects of a list, page by page.  Raise ActuationError for a response that is no list."""
    following: dict[str, str] = {}
    for _page in range(MAX_PAGES):
        page = await kubernetes.get(path, limit=str(PAGE), **query, **following)
        try:
            items, after = page["items"], page["metadata"].get("continue")
        except (KeyError, TypeError, AttributeError) as error:
            raise ActuationError(f"{path} is no list: {error!r}") from error
        for item in items:
            yield item
        if not after:
            return
        following = {"continue": after}
    raise ActuationError(f"{path} has more than {PAGE * MAX_PAGES:,} objects")


def _message_with_causes(content: bytes) -> str:
    """Return the message of a status, with the causes that a refused eviction has only in its details."""
    message = member_or_line(content, "message")
    try:
        causes = [str(cause["message"]) for cause in json.loads(content)["details"]["causes"]]
    except (ValueError, KeyError, TypeError):
        return message
    return " ".join([message, *causes])


@asynccontextmanager
async def kubernetes_server(access: KubernetesAccess) -> AsyncIterator[KubernetesServer]:
    """Yield the API server of `access`.  Raise UnusableSourceError where there is none."""
    try:
        from kubernetes.aio import client  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnusableSourceError(
            "driving targets on Kubernetes needs an extra: pip install 'fleetwright[kubernetes]'"
        ) from error
    settings = client.Configuration()
    renew = await _configure(settings, access.kubeconfig)
    async with client.ApiClient(settings) as api:
        yield KubernetesServer(api, renew)


async def _configure(settings: Any, kubeconfig: Path | None) -> Callable[[], Awaitable[None]] | None:
    """Fill in server and credentials; returns a function that renews credentials, where the client does not."""
    from kubernetes.aio import config  # noqa: PLC0415 - an extra

    source, exists = kubeconfig_source(kubeconfig)
    if kubeconfig is None and not exists:
        load_in_cluster(config, settings, source)
        return None
    violations = kubeconfig_errors(config)
    try:
        loader = await config.load_kube_config(config_file=source, client_configuration=settings, persist_config=False)
    except violations as error:
        raise UnusableSourceError(f"kubeconfig {source}: {' '.join(str(error).split())}") from error

    async def renew() -> None:
        try:
            await loader.load_and_set(settings)
        except violations as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UnreachableError(f"kubeconfig {source}: its credentials cannot be read again: {reason}") from error

    return renew
