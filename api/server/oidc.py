"""Accepts tokens of an OpenID Connect issuer: people sign in there, and their groups give scopes and a project.

The service checks signature (RS256 or ES256), issuer, audience and times.  It keeps the issuer's keys, and fetches them
again for an unknown key id, at most once in `REFETCH_S`.  While the issuer is down, it uses the keys that it has.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import httpx
import structlog

from api.server.group_grants import joined_grant
from api.server.problems import service_unavailable
from api.server.settings import GroupGrant, Settings, is_secure_url
from fleet.errors import FleetwrightError

MAX_TOKEN_CHARACTERS: Final = 16_384
MAX_DOCUMENT_BYTES: Final = 1_000_000
MAX_KEYS: Final = 100
MIN_RSA_BITS: Final = 2048
FETCH_S: Final = 5.0
REFETCH_S: Final = 10.0
KEYS_FRESH_S: Final = 600.0
LEEWAY_S: Final = 60.0  # between the clocks of issuer and service
_SUBJECT: Final = re.compile(r"[^\x00-\x1f\x7f]{1,190}")  # fits the actor of an audit entry
_ALGORITHMS: Final = {"RSA": "RS256", "EC": "ES256"}

log = structlog.get_logger(__name__)


class IssuerError(FleetwrightError):
    """The issuer does not respond, or not as an issuer of OpenID Connect."""


class OidcVerifier:
    def __init__(self, settings: Settings, *, now: Callable[[], datetime], monotonic_s: Callable[[], float]) -> None:
        import jwt  # noqa: PLC0415 - the extra `oidc`

        self._jwt = jwt
        self._settings, self._now = settings, now
        self._keys = _KeySet(settings.oidc_issuer or "", parse=jwt.PyJWK, monotonic_s=monotonic_s)

    def is_issuer_of(self, token: str) -> bool:
        """Check, without trust in the token, whether it names the issuer."""
        try:
            claims: Mapping[str, Any] = self._jwt.decode(token, options={"verify_signature": False})
        except (self._jwt.PyJWTError, ValueError, RecursionError):
            return False
        return claims.get("iss") == self._settings.oidc_issuer

    async def identify(self, token: str, *, project: str | None) -> tuple[str, GroupGrant] | None:
        """Return the subject and what its groups grant, for the chosen project; None for a token that does not hold."""
        try:
            claims = await self._claims(token)
        except (self._jwt.PyJWTError, ValueError, KeyError, TypeError, RecursionError) as error:
            log.info("oidc_token_refused", reason=f"{type(error).__name__}: {error}")
            return None
        groups = _groups(claims, self._settings.oidc_groups_claim)
        return f"oidc:{claims['sub']}", joined_grant(groups, self._settings.oidc_groups, project)

    async def _claims(self, token: str) -> Mapping[str, Any]:
        if len(token) > MAX_TOKEN_CHARACTERS:
            raise ValueError(f"longer than {MAX_TOKEN_CHARACTERS} characters")
        key = await self._keys.find(self._jwt.get_unverified_header(token)["kid"])
        claims: Mapping[str, Any] = self._jwt.decode(
            token,
            key,
            algorithms=[_ALGORITHMS[key.key_type]],
            issuer=self._settings.oidc_issuer,
            audience=self._settings.oidc_audience,
            # The times follow, with the clock of the service.
            options={
                "require": ["exp", "iss", "aud", "sub"],
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
        now_s = self._now().timestamp()
        if not now_s < float(claims["exp"]) + LEEWAY_S:
            raise ValueError("expired")
        if not float(claims.get("nbf", 0.0)) - LEEWAY_S <= now_s:
            raise ValueError("not valid yet")
        if not _SUBJECT.fullmatch(claims["sub"]):
            raise ValueError("the subject is not 1 to 190 printable characters")
        return claims


def looks_like_jwt(token: str) -> bool:
    return token.count(".") == 2


def _groups(claims: Mapping[str, Any], claim: str) -> frozenset[str]:
    """Read the groups from a claim; dots lead into nested claims."""
    found: Any = claims.get(claim)
    if found is None:
        found = claims
        for part in claim.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    listed = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    return frozenset(each for each in listed if isinstance(each, str))


class _KeySet:
    """Keeps the keys of an issuer."""

    def __init__(
        self, issuer: str, *, parse: Callable[[dict[str, Any]], Any], monotonic_s: Callable[[], float]
    ) -> None:
        self._issuer, self._parse, self._monotonic_s = issuer, parse, monotonic_s
        self._keys: dict[str, Any] = {}
        self._tried_s = self._fetched_s = float("-inf")
        self._one = asyncio.Lock()
        self._refresh: asyncio.Task[None] | None = None

    async def find(self, key_id: str) -> Any:
        """Return a key; ValueError for an unknown one."""
        if key_id not in self._keys:
            await self._fetch_rate_limited()
        elif self._monotonic_s() - self._fetched_s > KEYS_FRESH_S and (self._refresh is None or self._refresh.done()):
            self._refresh = asyncio.create_task(self._fetch_rate_limited())  # in the background
        if key_id in self._keys:
            return self._keys[key_id]
        if not self._keys:
            raise service_unavailable("identity-provider-unavailable", "the issuer of this token does not respond")
        raise ValueError(f"unknown key {key_id[:100]!r}")

    async def _fetch_rate_limited(self) -> None:
        async with self._one:
            if self._monotonic_s() - self._tried_s < REFETCH_S:
                return
            self._tried_s = self._monotonic_s()
            try:
                self._keys = await self._fetched()
                self._fetched_s = self._monotonic_s()
            except (IssuerError, httpx.HTTPError, TimeoutError) as error:
                log.warning("oidc_keys_not_fetched", issuer=self._issuer, reason=str(error) or type(error).__name__)

    async def _fetched(self) -> dict[str, Any]:
        async with asyncio.timeout(FETCH_S), httpx.AsyncClient(follow_redirects=False, timeout=FETCH_S) as http:
            described = await _document(http, f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
            if described.get("issuer") != self._issuer:
                raise IssuerError(f"the issuer calls itself {described.get('issuer')!r}")
            keys_url = str(described.get("jwks_uri"))
            if not is_secure_url(keys_url):
                raise IssuerError(f"jwks_uri is {keys_url!r}, expected https")
            listed = (await _document(http, keys_url)).get("keys")
        keys: dict[str, Any] = {}
        for each in listed[:MAX_KEYS] if isinstance(listed, list) else []:
            if (key := self._usable(each)) is not None:
                keys[each["kid"]] = key
        if not keys:
            raise IssuerError("the issuer has no usable key: RSA of 2,048 bits or more, or EC on P-256, with a kid")
        return keys

    def _usable(self, described: Any) -> Any | None:
        if not isinstance(described, dict) or not isinstance(described.get("kid"), str):
            return None
        kind, use = described.get("kty"), described.get("use", "sig")
        if use != "sig" or kind not in _ALGORITHMS or (kind == "EC" and described.get("crv") != "P-256"):
            return None
        try:
            key = self._parse({**described, "alg": _ALGORITHMS[kind]})
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one key, the others count
            log.warning("oidc_key_skipped", kid=described["kid"][:100], reason=type(error).__name__)
            return None
        return None if kind == "RSA" and key.key.key_size < MIN_RSA_BITS else key


async def _document(http: httpx.AsyncClient, url: str) -> dict[str, Any]:
    body = b""
    async with http.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
        if response.status_code != httpx.codes.OK:
            raise IssuerError(f"{url} returned {response.status_code}")
        async for part in response.aiter_raw():
            body += part
            if len(body) > MAX_DOCUMENT_BYTES:
                raise IssuerError(f"{url} returns more than {MAX_DOCUMENT_BYTES:,} bytes")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise IssuerError(f"{url} does not return JSON") from error
    if not isinstance(found, dict):
        raise IssuerError(f"{url} does not return an object")
    return found
