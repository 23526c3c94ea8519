"""Redfish over HTTP: sessions or basic authentication, ETags, and errors of `errors`.

DSP0266: a session's token is in `X-Auth-Token` and its path in `Location`; a PATCH carries the ETag of the resource
in `If-Match` and fails with 412 if the resource has changed meanwhile.
"""

import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from deploy.node_agent.gpu.errors import (
    DriverGoneError,
    GpuError,
    NoPermissionError,
    NotSupportedError,
    OutOfRangeError,
)

ROOT = "/redfish/v1/"
SESSIONS = "/redfish/v1/SessionService/Sessions"
TIMEOUT_S = 10.0  # BMCs are slow, and slower while they do something else
_KINDS: dict[int, type[GpuError]] = {
    401: NoPermissionError,
    403: NoPermissionError,
    404: NotSupportedError,
    405: NotSupportedError,
    501: NotSupportedError,
    400: OutOfRangeError,
    409: OutOfRangeError,
    422: OutOfRangeError,
}


class Login(NamedTuple):
    user: str
    password: str


class Resource(NamedTuple):
    body: dict[str, Any]
    etag: str | None


class ChangedError(GpuError):
    """Another client changed the resource after the read."""


def read_login(path: Path) -> Login:
    """Read USER:PASSWORD from one line."""
    try:
        user, colon, password = path.read_text(encoding="utf-8").strip().partition(":")
    except (OSError, UnicodeDecodeError) as error:
        raise GpuError(f"{path}: {getattr(error, 'strerror', None) or 'is not text'}") from error
    if not (user and colon and password) or "\n" in password:
        raise GpuError(f"{path}: expected one line USER:PASSWORD")
    return Login(user, password)


class RedfishClient:
    def __init__(
        self, url: str, *, login: Login | None = None, basic: bool = False, authority: Path | None = None
    ) -> None:
        self._login, self._basic = login, basic
        self._session: str | None = None  # its place, to end it
        try:
            # Reading the system's authorities takes longer than all else here.
            needed = url.startswith("https:")
            trusted = (
                ssl.create_default_context(cafile=authority) if needed else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            )
        except OSError as error:
            raise GpuError(f"{authority}: {error.strerror or error}") from error
        self._http = httpx.Client(
            base_url=url,
            auth=(login.user, login.password) if login and basic else None,
            headers={"OData-Version": "4.0", "Accept": "application/json"},
            timeout=TIMEOUT_S,
            trust_env=False,  # a BMC is never behind a proxy
            verify=trusted,
        )

    def get(self, path: str) -> Resource:
        """Return the resource at the place that the service gave for it."""
        response = self._send("GET", path)
        try:
            body = response.json()
        except ValueError as error:
            raise DriverGoneError(f"{path}: the response is not JSON") from error
        if not isinstance(body, dict):
            raise DriverGoneError(f"{path}: the response is not a resource")
        return Resource(body, response.headers.get("etag") or body.get("@odata.etag"))

    def members(self, path: str) -> list[str]:
        members = self.get(path).body.get("Members", [])
        return [str(member["@odata.id"]) for member in members if "@odata.id" in member]

    def patch(self, path: str, body: dict[str, Any], *, etag: str | None) -> None:
        """Change a resource that was read with this ETag; raise ChangedError if it has changed since."""
        headers = {"Prefer": "return=minimal"} | ({"If-Match": etag} if etag else {})
        self._send("PATCH", path, json=body, headers=headers)

    def close(self) -> None:
        """End the session: a BMC has few."""
        if self._session is not None:
            with suppress(GpuError):
                self._once("DELETE", self._session)
        self._session = None
        self._http.close()

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        if not path.startswith("/redfish/"):
            raise DriverGoneError(f"{path!r} is no place of this service")
        if self._login is not None and not self._basic and self._session is None and path != ROOT:
            self._log_in(self._login)
        response = self._once(method, path, **more)
        if response.status_code == httpx.codes.UNAUTHORIZED and self._session is not None and self._login:
            self._log_in(self._login)  # sessions run out
            response = self._once(method, path, **more)
        _raise_for(response, path=path)
        return response

    def _log_in(self, login: Login) -> None:
        self._http.headers.pop("X-Auth-Token", None)
        response = self._once("POST", SESSIONS, json={"UserName": login.user, "Password": login.password})
        _raise_for(response, path=SESSIONS)
        token, place = response.headers.get("x-auth-token"), response.headers.get("location")
        if not token or not place:
            raise DriverGoneError(f"{SESSIONS}: a session without X-Auth-Token or Location")
        self._http.headers["X-Auth-Token"] = token
        self._session = httpx.URL(place).path

    def _once(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **more)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise DriverGoneError(f"{path}: {str(error) or type(error).__name__}") from error


def _raise_for(response: httpx.Response, *, path: str) -> None:
    if response.is_success:
        return
    message_ = f"{path}: {response.status_code}{_message(response)}"
    if response.status_code in (httpx.codes.PRECONDITION_FAILED, httpx.codes.PRECONDITION_REQUIRED):
        raise ChangedError(message_)
    raise _KINDS.get(response.status_code, DriverGoneError)(message_)


def _message(response: httpx.Response) -> str:
    """Return the first of the extended messages, where the body has them."""
    try:
        error = response.json()["error"]
        message_ = next(iter(error.get("@Message.ExtendedInfo", ())), error)
        text = message_.get("Message") or message_.get("message") or ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return f" {text}"[:300] if text else ""
