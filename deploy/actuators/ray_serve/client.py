"""One exchange with Ray Serve's dashboard, for whoever reads, scales or declares there.

Just after its start the dashboard answers 500 for some seconds, so what may be done twice is repeated.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import httpx
import stamina

from deploy.common.errors import ActuationError, UnreachableError

TIMEOUT: Final = httpx.Timeout(10.0, connect=3.0)
ATTEMPTS: Final = 3
APPLICATIONS: Final = "api/serve/applications/"


def scale_path(*, application: str, deployment: str) -> str:
    """Of the external scale API."""
    return f"api/v1/applications/{quote(application, safe='')}/deployments/{quote(deployment, safe='')}/scale"


def attempts() -> AsyncIterator[stamina.Attempt]:
    """As often as something is tried that a Serve which cannot be reached may have missed."""
    return stamina.retry_context(
        on=UnreachableError, attempts=ATTEMPTS, wait_initial=0.2, wait_jitter=0.2, wait_max=2.0
    ).__aiter__()


@dataclass(frozen=True, slots=True)
class ServeHttp:
    """One Serve's dashboard."""

    http: httpx.AsyncClient
    url: str

    async def call(self, method: str, path: str, *, json: Any = None) -> httpx.Response:
        """What may be done twice; any answer but 5xx."""
        async for attempt in attempts():
            with attempt:
                return await self.once(method, path, json=json)
        raise AssertionError("the last attempt returns or raises")

    async def once(self, method: str, path: str, *, json: Any = None) -> httpx.Response:
        """Any answer but 5xx; UnreachableError for those, and when there is none."""
        try:
            response = await self.http.request(method, f"{self.url.rstrip('/')}/{path}", json=json, timeout=TIMEOUT)
        except httpx.RequestError as error:
            raise UnreachableError(f"{self.url} does not answer: {str(error) or type(error).__name__}") from error
        if response.is_server_error:
            raise UnreachableError(self._told(response))
        return response

    def ok(self, response: httpx.Response) -> httpx.Response:
        """The answer; ActuationError when it is no 200."""
        if response.status_code != HTTPStatus.OK:
            raise ActuationError(self._told(response))
        return response

    def _told(self, response: httpx.Response) -> str:
        return f"{self.url} answered {response.status_code}: {_said(response)}"


def _said(response: httpx.Response) -> str:
    """What the answer says: Serve's `error` member, else the last line (a traceback ends with its cause)."""
    try:
        return str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        lines = response.text.strip().splitlines()
        return lines[-1][:200] if lines else "nothing"
