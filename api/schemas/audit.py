"""The audit: append-only, without gaps, each entry chained to the previous one by its hash."""

from datetime import datetime
from typing import Any

from pydantic import Field

from fleet.documents import Frozen


class AuditEntry(Frozen):
    """One write: actor, action and subject."""

    seq: int = Field(ge=1, description="1, 2, 3 … without a hole.")
    at: datetime
    actor: str = Field(description="`token:ID`, `anonymous` or `system:NAME`.")
    action: str = Field(description="Such as `plan.created`.")
    subject: str = Field(description="The changed object, such as `plans/0197…`.")
    detail: dict[str, Any]
    request_id: str | None = None
    hash: str = Field(description="SHA-256 over this entry, as it was written, and the previous hash.")


class AuditCheck(Frozen):
    """The result of verifying the whole chain."""

    entries: int = Field(ge=0)
    intact: bool
    first_broken_seq: int | None = None
