"""API tokens: who may do what.  The secret is shown once, at creation; the database keeps its hash."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from api.schemas.names import Text
from fleet.documents import Frozen


class Scope(StrEnum):
    """What a token allows.  `admin` includes the others; the others include nothing but themselves."""

    READ = "read"  # every GET but tokens and audit
    PLAN = "plan"  # make plans, replace catalogue documents
    OPERATE = "operate"  # targets, freeze, status reports
    ADMIN = "admin"  # tokens and audit, and all of the above


class TokenRequest(Frozen):
    """A token to be made."""

    name: Text = Field(description="Who or what will hold it.")
    scopes: frozenset[Scope] = Field(
        min_length=1, json_schema_extra={"uniqueItems": False}
    )  # naming one twice is harmless
    expires_in_s: int | None = Field(default=None, ge=60, le=10 * 365 * 86_400, description="Null: until revoked.")


class TokenInfo(Frozen):
    """What is known of a token, the secret excepted."""

    id: str
    name: str
    scopes: frozenset[Scope]
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


class TokenCreated(Frozen):
    """A new token.  `secret` is null when the same idempotency key asks again: it is shown once."""

    info: TokenInfo
    secret: str | None = Field(repr=False, description="Send as `Authorization: Bearer SECRET`.")
