"""Authenticates and authorises callers.

A token is `fw_ID_SECRET`.  The secret has 256 random bits, so one round of SHA-256 is enough (slow hashes protect
guessable passwords).  The comparison takes constant time.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated

import structlog
from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.schemas.projects import PROJECT_HEADER
from api.schemas.tokens import INCLUDED, TokenScope
from api.server.limits import RateLimiter
from api.server.oidc import OidcVerifier, looks_like_jwt
from api.server.problems import ProblemError
from api.server.sessions import require_csrf_token, session_cookie
from api.server.settings import Settings
from api.server.token_cache import TokenCache
from api.server.token_review import TokenReviewer

TOKEN_FORM = re.compile(r"fw_(?P<id>[a-z0-9]{12})_(?P<secret>[A-Za-z0-9_-]{43})")

_bearer = HTTPBearer(auto_error=False, scheme_name="token", description="`Authorization: Bearer fw_ID_SECRET`")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


@dataclass(frozen=True, slots=True)
class Principal:
    actor: str  # the name in the audit
    scopes: frozenset[TokenScope]
    rate_limited: bool = True  # False for code inside the service
    project: str | None = None  # the only project that it sees and changes; None: every project

    def allows(self, scope: TokenScope) -> bool:
        """Check a scope, given directly or included in another one."""
        return scope in self.scopes or any(scope in INCLUDED.get(held, ()) for held in self.scopes)


@dataclass(frozen=True, slots=True)
class StaticToken:
    """Defines a token of this process only, for code inside the service."""

    token: str = field(repr=False)
    principal: Principal


LOOPBACK = Principal(actor="anonymous", scopes=frozenset({TokenScope.ADMIN}))
READER = Principal(actor="anonymous", scopes=frozenset({TokenScope.READ}))


class Authenticator:
    def __init__(
        self,
        *,
        tokens: TokenCache,
        settings: Settings,
        limiter: RateLimiter,
        now: Callable[[], datetime],
        static_tokens: Sequence[StaticToken] = (),
        oidc: OidcVerifier | None = None,
        reviewer: TokenReviewer | None = None,
    ) -> None:
        self._tokens = tokens
        self._settings = settings
        self._limiter = limiter
        self._now = now
        self._oidc, self._reviewer = oidc, reviewer
        self._static = {token_hash(known.token): known.principal for known in static_tokens}

    async def authenticate(
        self, *, token: str | None, address: str, project: str | None = None, is_session: bool = False
    ) -> Principal:
        """Return the principal of a token and charge its rate limit.  Wrong tokens are charged to the address.

        `project` is the one that the request chose: groups of an issuer may grant different scopes in each.
        """
        principal = await self._identify(token, project, is_session=is_session)
        if principal is None or principal in {READER, LOOPBACK}:
            self._limiter.spend(f"address:{address}")
        elif principal.rate_limited:
            self._limiter.spend(principal.actor)
        if principal is None:
            raise _unauthorized("this token is unknown, expired or revoked" if token else "a token is needed")
        return principal

    async def is_session(self, secret: str) -> bool:
        """Check that a cookie holds the secret of a session that has not ended."""
        return await self._identify(secret, None, is_session=True) is not None

    async def _identify(self, token: str | None, project: str | None, *, is_session: bool) -> Principal | None:
        if token is None:
            if self._settings.insecure_no_auth:
                return LOOPBACK
            return READER if self._settings.anonymous_read else None
        form = TOKEN_FORM.fullmatch(token)
        if form is None:
            return None if is_session else await self._of_issuer(token, project)
        digest = token_hash(token)
        if (known := self._static.get(digest)) is not None and not is_session:
            return known
        return await self._stored(form["id"], digest, is_session=is_session)

    async def _stored(self, token_id: str, digest: bytes, *, is_session: bool) -> Principal | None:
        record = await self._tokens.get(token_id)
        # A session acts for the token that opened it, and ends with it.
        opener = record if record is None or record.parent is None else await self._tokens.get(record.parent)
        if record is None or opener is None or not hmac.compare_digest(record.secret_sha256, digest):
            return None
        now = self._now()
        if not record.is_valid(now) or not opener.is_valid(now) or (record.parent is not None) != is_session:
            return None
        return Principal(actor=actor_of(opener.id), scopes=known_scopes(record.scopes), project=record.project)

    async def _of_issuer(self, token: str, project: str | None) -> Principal | None:
        if not looks_like_jwt(token):
            return None
        source: OidcVerifier | TokenReviewer | None = self._oidc
        if self._reviewer is not None and self._reviewer.is_addressed(token):
            source = self._reviewer
        if self._oidc is not None and self._oidc.is_issuer_of(token):  # both may have the same audience
            source = self._oidc
        if source is None or (found := await source.identify(token, project=project)) is None:
            return None
        actor, grant = found
        return Principal(actor=actor, scopes=grant.scopes, project=grant.project)


def chosen_project(request: Request) -> str | None:
    """Return the project that the request names."""
    return request.headers.get(PROJECT_HEADER) or request.query_params.get("project")


def actor_of(token_id: str) -> str:
    """Return the audit's name for the holder of a token."""
    return f"token:{token_id}"


@lru_cache(maxsize=64)
def known_scopes(stored: frozenset[str]) -> frozenset[TokenScope]:
    """Return the scopes that this release knows; a newer release may have stored others."""
    return frozenset(TokenScope(scope) for scope in stored if scope in set(TokenScope))


def token_hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


@dataclass(frozen=True, slots=True)
class RequireScope:
    """Admits only principals with a scope, as a FastAPI dependency; without one, every principal.

    An operation on what belongs to the whole fleet (`fleet`) refuses tokens of one project.
    """

    scope: TokenScope | None
    fleet: bool = False

    async def __call__(self, request: Request, _shown: Credentials) -> Principal:
        """Return the principal that was admitted before the body was read; `_shown` documents the scheme in OpenAPI."""
        principal: Principal = request.state.principal
        return principal

    async def validate(self, request: Request) -> None:
        """Admit the caller, or raise."""
        request.state.principal = await self._principal(request)

    async def _principal(self, request: Request) -> Principal:
        authenticator: Authenticator = request.app.state.authenticator
        credentials = await _bearer(request)
        session = None if credentials is not None else session_cookie(request)
        if session is not None and not await authenticator.is_session(session):
            session = None  # it has ended: the caller has no token
        principal = await authenticator.authenticate(
            token=credentials.credentials if credentials is not None else session,
            address=request.client.host if request.client is not None else "unknown",
            project=chosen_project(request),
            is_session=session is not None,
        )
        structlog.contextvars.bind_contextvars(actor=principal.actor)
        if session is not None:
            require_csrf_token(request, session)
            request.state.session = session
        if self.scope is None or principal.allows(self.scope):
            if self.fleet and principal.project is not None:
                raise ProblemError(
                    status=HTTPStatus.FORBIDDEN,
                    kind="forbidden",
                    detail=f"a token of the whole fleet is needed; this one belongs to project {principal.project!r}",
                )
            return principal
        if principal in {READER, LOOPBACK}:
            raise _unauthorized(f"a token with scope {self.scope.value!r} is needed")
        held = ", ".join(sorted(principal.scopes))
        raise ProblemError(
            status=HTTPStatus.FORBIDDEN,
            kind="forbidden",
            detail=f"scope {self.scope.value!r} is needed; this token has: {held}",
        )


Caller = Annotated[Principal, Depends(RequireScope(None))]
Reader = Annotated[Principal, Depends(RequireScope(TokenScope.READ))]
Planner = Annotated[Principal, Depends(RequireScope(TokenScope.PLAN))]
Operator = Annotated[Principal, Depends(RequireScope(TokenScope.OPERATE))]
Reporter = Annotated[Principal, Depends(RequireScope(TokenScope.REPORT))]
Approver = Annotated[Principal, Depends(RequireScope(TokenScope.APPROVE))]
# Of what belongs to the whole fleet.
FleetPlanner = Annotated[Principal, Depends(RequireScope(TokenScope.PLAN, fleet=True))]
FleetOperator = Annotated[Principal, Depends(RequireScope(TokenScope.OPERATE, fleet=True))]
FleetReporter = Annotated[Principal, Depends(RequireScope(TokenScope.REPORT, fleet=True))]
Auditor = Annotated[Principal, Depends(RequireScope(TokenScope.AUDIT, fleet=True))]
Admin = Annotated[Principal, Depends(RequireScope(TokenScope.ADMIN, fleet=True))]


def _unauthorized(detail: str) -> ProblemError:
    return ProblemError(
        status=HTTPStatus.UNAUTHORIZED,
        kind="unauthorized",
        detail=detail,
        headers={"WWW-Authenticate": 'Bearer realm="fleetwright"'},
    )
