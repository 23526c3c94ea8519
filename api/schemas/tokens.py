"""API tokens and their scopes.  Creation shows the secret once; the database stores its hash."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from api.schemas.names import Text
from fleet.documents import Frozen


class TokenScope(StrEnum):
    """What a token allows.  `admin` includes the other scopes; those include only themselves."""

    READ = "read"  # every GET except tokens and audit
    PLAN = "plan"  # create stored results, replace catalogue documents
    OPERATE = "operate"  # targets, freeze, status reports
    ADMIN = "admin"  # tokens and audit, and everything above


class TokenRequest(Frozen):
    """A token to create."""

    name: Text = Field(description="The person or program that will hold the token.")
    # Duplicates are harmless.
    scopes: frozenset[TokenScope] = Field(min_length=1, json_schema_extra={"uniqueItems": False})
    expires_in_s: int | None = Field(default=None, ge=60, le=10 * 365 * 86_400, description="Null: until revoked.")


class TokenInfo(Frozen):
    """A token without its secret."""

    id: str
    name: str
    scopes: frozenset[TokenScope]
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


class TokenCreated(Frozen):
    """A new token.  `secret` is null when an idempotency key is repeated: the service shows it once."""

    info: TokenInfo
    secret: str | None = Field(repr=False, description="Send as `Authorization: Bearer SECRET`.")
