"""API tokens and their scopes.  Creation shows the secret once; the database stores its hash."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from pydantic import Field

from api.schemas.names import Name, Text
from fleet.documents import Frozen


class TokenScope(StrEnum):
    """What a token allows.  `admin` includes the other scopes, and `operate` includes `report`."""

    READ = "read"  # every GET except tokens and audit
    PLAN = "plan"  # create stored results, replace catalogue documents
    OPERATE = "operate"  # targets, freeze, power budgets, quarantine
    REPORT = "report"  # for controllers and monitors: status, diagnoses, evaluations, leases, cases
    APPROVE = "approve"  # change sets of targets that others prepared
    AUDIT = "audit"  # read and check the audit
    ADMIN = "admin"  # tokens and projects, and everything above


# Controllers of release 0.2.0 have tokens with `operate`.
INCLUDED: Final[Mapping[TokenScope, frozenset[TokenScope]]] = {
    TokenScope.OPERATE: frozenset({TokenScope.REPORT}),
    TokenScope.ADMIN: frozenset(TokenScope),
}


class TokenRequest(Frozen):
    """A token to create."""

    name: Text = Field(description="The person or program that will hold the token.")
    # Duplicates are harmless.
    scopes: frozenset[TokenScope] = Field(min_length=1, json_schema_extra={"uniqueItems": False})
    expires_in_s: int | None = Field(default=None, ge=60, le=10 * 365 * 86_400, description="Null: until revoked.")
    project: Name | None = Field(default=None, description="The only project of the token; null: every project.")


class TokenInfo(Frozen):
    """A token without its secret."""

    id: str
    name: str
    scopes: frozenset[TokenScope]
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    project: str | None = None
    parent: str | None = Field(default=None, description="Of a session of a browser: the token that opened it.")


class TokenCreated(Frozen):
    """A new token.  `secret` is null when an idempotency key is repeated: the service shows it once."""

    info: TokenInfo
    secret: str | None = Field(repr=False, description="Send as `Authorization: Bearer SECRET`.")
