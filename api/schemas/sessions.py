"""Sessions: how a browser uses the API without keeping a token in a page."""

from datetime import datetime

from pydantic import Field

from api.schemas.tokens import TokenScope
from fleet.documents import Frozen


class SessionInfo(Frozen):
    """The caller of a request, and its session where a cookie named it."""

    actor: str = Field(description="As in the audit: `token:ID`, `anonymous` or `system:NAME`.")
    name: str | None = Field(default=None, description="Of the token; null: none is stored for this caller.")
    scopes: tuple[TokenScope, ...]
    project: str | None = Field(default=None, description="Of the token; null: every project.")
    csrf_token: str | None = Field(
        default=None, description="Send as `X-CSRF-Token` with every write of this session; null: no session."
    )
    expires_at: datetime | None = Field(default=None, description="End of the session; null: no session.")
