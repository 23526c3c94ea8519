"""The audit: append-only, without gaps, each entry chained to the previous one by its hash."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from fleet.documents import Frozen

NDJSON = "application/x-ndjson"
# Number and hash of an entry.
Anchor = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,10}:[0-9a-f]{64}$")]


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
    """The result of verifying the chain."""

    entries: int = Field(ge=0)
    intact: bool
    first_broken_seq: int | None = None
    checked_from_seq: int = Field(default=1, ge=1, description="The first entry whose hash was computed again.")
    anchor: Anchor | None = Field(default=None, description="The last entry.  Keep it elsewhere for a later check.")


class AuditCheckpoint(Frozen):
    """A place up to which a check found the chain intact: a later check begins there."""

    seq: int = Field(ge=1)
    at: datetime
    made_by: str
    anchor: Anchor
