"""Accepts tokens of Kubernetes service accounts: the API server of the cluster reviews them (TokenReview).

A token must be issued for the audience of this service, as a projected volume requests it: other tokens of the
cluster, which give rights elsewhere, are neither sent nor accepted.  A review is kept for some seconds, so that a
deleted account loses its rights as soon.  While the API server does not respond, callers get 503.
"""

import asyncio
import base64
import hashlib
import json
import ssl
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httpx
import structlog

from api.server.group_grants import joined_grant
from api.server.problems import service_unavailable
from api.server.settings import GroupGrant, Settings
from fleet.errors import FleetwrightError

PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
REVIEW_S: Final = 5.0
KEPT_S: Final = 10.0
MAX_KEPT: Final = 10_000
AT_ONCE: Final = 16
MAX_WAITING: Final = 200  # different tokens: callers with invented ones must not occupy the API server
MAX_TOKEN_CHARACTERS: Final = 16_384
MAX_NAME: Final = 189  # with the prefix, an actor of the audit

log = structlog.get_logger(__name__)


class ReviewError(FleetwrightError):
    """The API server does not respond, or does not review tokens."""


@dataclass(frozen=True, slots=True)
class _Account:
    name: str  # such as `system:serviceaccount:NAMESPACE:NAME`
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Kept:
    account: _Account | None
    until_s: float


class TokenReviewer:
    def __init__(self, settings: Settings, *, monotonic_s: Callable[[], float]) -> None:
        self._settings, self._monotonic_s = settings, monotonic_s
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._in_flight: dict[bytes, asyncio.Task[_Account | None]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._http: httpx.AsyncClient | None = None

    def is_addressed(self, token: str) -> bool:
        """Check, without trust in the token, that it is for this service: no other token is sent to the cluster."""
        audiences = _unverified_claims(token).get("aud")
        return self._settings.kubernetes_audience in (audiences if isinstance(audiences, list) else [audiences])

    async def identify(self, token: str, *, project: str | None) -> tuple[str, GroupGrant] | None:
        """Return the account and what it is granted, for the chosen project; None for a token that does not hold."""
        digest = hashlib.sha256(token.encode()).digest()
        kept = self._kept.get(digest)
        account = kept.account if kept is not None and self._monotonic_s() < kept.until_s else None
        if kept is None or self._monotonic_s() >= kept.until_s:
            account = await self._reviewed_once(digest, token)
        if account is None:
            return None
        names = account.groups | {account.name}
        return f"kubernetes:{account.name}", joined_grant(names, self._settings.kubernetes_grants, project)

    async def close(self) -> None:
        await asyncio.gather(*self._in_flight.values(), return_exceptions=True)
        if self._http is not None:
            await self._http.aclose()

    async def _reviewed_once(self, digest: bytes, token: str) -> _Account | None:
        """Review a token; requests with the same token share one review."""
        if (task := self._in_flight.get(digest)) is None:
            if len(self._in_flight) >= MAX_WAITING:
                raise service_unavailable("identity-provider-unavailable", "too many new tokens wait for a review")
            task = self._in_flight[digest] = asyncio.create_task(self._review_and_keep(digest, token))
            task.add_done_callback(lambda _done: self._in_flight.pop(digest, None))
        try:
            return await asyncio.shield(task)
        except (ReviewError, httpx.HTTPError, OSError) as error:
            log.warning("token_not_reviewed", reason=str(error) or type(error).__name__)
            raise service_unavailable(
                "identity-provider-unavailable", "the Kubernetes API server does not review this token"
            ) from error

    async def _review_and_keep(self, digest: bytes, token: str) -> _Account | None:
        async with self._slots:
            account = await self._review(token)
        self._kept.pop(digest, None)
        self._kept[digest] = _Kept(account, self._monotonic_s() + KEPT_S)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return account

    async def _review(self, token: str) -> _Account | None:
        audience = self._settings.kubernetes_audience
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        }
        if self._http is None:
            self._http = await asyncio.to_thread(self._connected)
        # Read each time: the kubelet renews the token of the pod.
        own = await asyncio.to_thread((self._settings.kubernetes_account_dir / "token").read_text, encoding="ascii")
        headers = {"Authorization": f"Bearer {own.strip()}"}
        response = await self._http.post(PATH, json=body, headers=headers)
        if response.status_code != HTTPStatus.CREATED:
            raise ReviewError(f"the API server returned {response.status_code} to a review")
        return _account_of(response.json(), audience)

    def _connected(self) -> httpx.AsyncClient:
        authority = self._settings.kubernetes_account_dir / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority))
        return httpx.AsyncClient(
            base_url=self._settings.kubernetes_api_url, verify=context, timeout=REVIEW_S, trust_env=False
        )


def _account_of(review: Any, audience: str) -> _Account | None:
    """Return the account of a review that the API server has completed; None for a token that does not hold."""
    status = review.get("status", {}) if isinstance(review, dict) else {}
    user = status.get("user", {})
    name = user.get("username", "")
    if not status.get("authenticated") or audience not in status.get("audiences", []):
        log.info("kubernetes_token_refused", reason=status.get("error") or "not authenticated for the audience")
        return None
    if not name or len(name) > MAX_NAME:
        log.info("kubernetes_token_refused", reason=f"the name of the account is not 1 to {MAX_NAME} characters")
        return None
    return _Account(name, frozenset(user.get("groups", [])))


def _unverified_claims(token: str) -> dict[str, Any]:
    if len(token) > MAX_TOKEN_CHARACTERS:
        return {}
    payload = token.split(".")[1]
    try:
        found = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
