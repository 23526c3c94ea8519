"""Creates tokens: ids that sort by time, secrets with 256 random bits, and the first token of an installation."""

import secrets
import string
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from api.schemas.tokens import TokenInfo, TokenRequest, TokenScope
from api.server.auth import TOKEN_FORM, known_scopes, token_hash
from api.server.service import Service
from api.store import StoreError, TokenRecord, Transaction
from fleet.errors import FleetwrightError

FIRST_START = "system:first-start"
READY_POLL_S = 1.0
_DIGITS = string.digits + string.ascii_lowercase
_TIME_DIGITS, _RANDOM_DIGITS = 8, 4  # 36^8 milliseconds last until 2059

log = structlog.get_logger(__name__)


class BootstrapTokenError(FleetwrightError):
    """The file of the first token does not contain a token."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """Holds a token with its secret, before it is stored."""

    secret: str = field(repr=False)
    record: TokenRecord

    def opened_by(self, opener: TokenRecord, *, expires_at: datetime) -> "NewToken":
        """Return it as a session of another token."""
        record = replace(self.record, parent=opener.id, project=opener.project, expires_at=expires_at)
        return replace(self, record=record)


def new_token(request: TokenRequest, *, now: datetime, created_by: str) -> NewToken:
    secret = f"fw_{_new_id(now)}_{secrets.token_urlsafe(32)}"
    return _token(secret, request, now=now, created_by=created_by)


def token_info(record: TokenRecord) -> TokenInfo:
    fields = {name: getattr(record, name) for name in TokenInfo.model_fields}
    return TokenInfo(**fields | {"scopes": known_scopes(record.scopes)})


def read_bootstrap_token(path: Path | None) -> str | None:
    """Read the operator's token for the first start."""
    if path is None:
        return None
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BootstrapTokenError(f"bootstrap_token_file: {path} cannot be read: {error}") from error
    if TOKEN_FORM.fullmatch(token) is None:
        raise BootstrapTokenError(
            f"bootstrap_token_file: {path} does not hold a token; allowed: fw_ID_SECRET with an ID of 12 lower-case "
            "letters and digits and a SECRET of 43 letters, digits, - and _"
        )
    return token


async def make_first_token(
    service: Service,
    *,
    given: str | None,
    show: Callable[[str], None],
    stopped_within: Callable[[float], Awaitable[bool]],
) -> None:
    """Store the given token once the database is ready; without one, create a token in a database that has none.

    `stopped_within` waits for a number of seconds and returns whether the service stops.  Replicas that start together
    queue at the audit's head, so that only the first of them finds no token.
    """
    while not await _has_first_token(service, given=given, show=show):
        if await stopped_within(READY_POLL_S):
            return
    service.first_token_stored.set()


async def _has_first_token(service: Service, *, given: str | None, show: Callable[[str], None]) -> bool:
    """Try once; retry while the database is not ready."""
    try:
        async with service.store.reading() as tx:
            if not service.supports_schema(await tx.schema_revision()):
                return False
        async with service.store.transaction() as tx:
            await _ensure_first_token(service, tx, given=given, show=show)
    except StoreError as error:
        log.warning("first_token_delayed", reason=str(error))
        return False
    return True


async def _ensure_first_token(
    service: Service, tx: Transaction, *, given: str | None, show: Callable[[str], None]
) -> None:
    await tx.audit.lock()
    request = TokenRequest(name="first admin", scopes=frozenset({TokenScope.ADMIN}))
    now = service.now()
    if given is None:
        if await tx.tokens.any():
            return
        made = new_token(request, now=now, created_by=FIRST_START)
    else:
        made = _token(given, request, now=now, created_by=FIRST_START)
        if (known := await tx.tokens.get(made.record.id)) is not None:
            if known.secret_sha256 != made.record.secret_sha256:
                log.warning("bootstrap_token_ignored", token_id=known.id, reason="this id exists with another secret")
            return
    await tx.tokens.add(made.record)
    await service.audit(tx, actor=FIRST_START, action="token.created", subject=f"tokens/{made.record.id}")
    if given is None:
        show(
            made.secret
        )  # before the commit: showing a token that is not stored does less harm than storing one that was not shown


def _token(secret: str, request: TokenRequest, *, now: datetime, created_by: str) -> NewToken:
    _prefix, token_id, _rest = secret.split("_", maxsplit=2)
    expires_in_s = request.expires_in_s
    record = TokenRecord(
        id=token_id,
        name=request.name,
        secret_sha256=token_hash(secret),
        scopes=request.scopes,
        created_at=now,
        created_by=created_by,
        expires_at=now + timedelta(seconds=expires_in_s) if expires_in_s is not None else None,
        revoked_at=None,
        project=request.project,
    )
    return NewToken(secret=secret, record=record)


def _new_id(now: datetime) -> str:
    milliseconds = int(now.timestamp() * 1000)
    digits = []
    for _ in range(_TIME_DIGITS):
        milliseconds, digit = divmod(milliseconds, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)) + "".join(secrets.choice(_DIGITS) for _ in range(_RANDOM_DIGITS))
