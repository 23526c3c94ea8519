"""Holds what both clients share: URL, token, timeouts and retries; and a transport to a service in this process."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from api.client.calls import Call
from api.client.errors import ClientSettingsError
from api.client.retries import Retries
from api.client.tokens import BearerToken
from api.schemas.names import NAME_PATTERN
from api.schemas.projects import PROJECT_HEADER
from api.tracing import TRACEPARENT, current_traceparent

URL_VARIABLE = "FLEETWRIGHT_URL"
DEFAULT_URL = "http://127.0.0.1:8400"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Limits one attempt.  The read timeout grows by the time that the service may work on the call."""

    connect_s: float = 5.0
    read_s: float = 30.0
    write_s: float = 30.0
    pool_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Connection:
    """Holds the service and the settings of the connection; its representation contains no secret."""

    url: httpx.URL
    auth: BearerToken | None
    timeouts: Timeouts
    retries: Retries
    project: str | None = None

    def http_options(self) -> dict[str, Any]:
        """Return the arguments that `httpx.Client` and `httpx.AsyncClient` share."""
        return {
            "base_url": self.url,
            "auth": self.auth,
            "headers": {"User-Agent": f"fleetwright/{version('fleetwright')}"}
            | ({PROJECT_HEADER: self.project} if self.project is not None else {}),
            # A redirect could carry the token to another host.
            "follow_redirects": False,
        }

    def request_options(self, call: Call[Any]) -> dict[str, Any]:
        """Return the arguments that `httpx.Client.request` and `httpx.AsyncClient.request` share."""
        limits = self.timeouts
        return {
            "method": call.method,
            "url": call.path,
            "params": call.query,
            "headers": _with_trace(call.headers),
            "content": call.body,
            "timeout": httpx.Timeout(
                connect=limits.connect_s, read=limits.read_s + call.work_s, write=limits.write_s, pool=limits.pool_s
            ),
        }


class InProcessTransport(httpx.ASGITransport):
    """Calls a service in this process.  A cancelled caller leaves its request running, as a caller over a network does.

    A cancellation inside a transaction can leave a cursor that holds SQLite's write lock until garbage collection.
    """

    def __init__(self, app: Any, *, raise_app_exceptions: bool = True) -> None:
        super().__init__(app, raise_app_exceptions=raise_app_exceptions)
        self._running: set[asyncio.Task[httpx.Response]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        task = asyncio.create_task(super().handle_async_request(request))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def aclose(self) -> None:
        """Wait for the requests of cancelled callers, because the service may close its database next."""
        if self._running:
            await asyncio.wait(self._running)


def make_connection(
    *,
    url: str,
    token: str | Path | None,
    timeouts: Timeouts | None,
    retries: Retries | None,
    project: str | None = None,
) -> Connection:
    """Validate the arguments of a client."""
    if project is not None and not re.fullmatch(NAME_PATTERN, project):
        raise ClientSettingsError(f"project: must be a name that matches {NAME_PATTERN}, got {project!r}")
    return Connection(
        url=_checked(url),
        auth=BearerToken(token) if token is not None else None,
        timeouts=timeouts or Timeouts(),
        retries=retries or Retries(),
        project=project,
    )


def url_from_environment(environment: Mapping[str, str]) -> str:
    """Return the URL of the environment; else the one of `make run`."""
    return environment.get(URL_VARIABLE) or DEFAULT_URL


def _with_trace(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Add the traceparent, so that the spans of the service belong to the trace of the caller."""
    traceparent = current_traceparent()
    return headers if traceparent is None else {**headers, TRACEPARENT: traceparent}


def _checked(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in {"http", "https"} or not url.host:
        # Without the text itself, which may contain a password.
        raise ClientSettingsError("url: must be http://HOST[:PORT] or https://HOST[:PORT], with or without a path")
    if url.userinfo:
        raise ClientSettingsError("url: must not hold a user name or password; pass the token as `token`")
    return url
