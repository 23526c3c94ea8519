"""The audit trail: append-only, gapless, each entry chained to the one before by its hash."""

from datetime import datetime
from typing import Any

from pydantic import Field

from fleet.documents import Frozen


class AuditEntry(Frozen):
    """One thing that was done, by whom, to what."""

    seq: int = Field(ge=1, description="1, 2, 3 … without a hole.")
    at: datetime
    actor: str = Field(description="`token:ID`, `anonymous` or `system:NAME`.")
    action: str = Field(description="What was done, such as `plan.created`.")
    subject: str = Field(description="What it was done to, such as `plans/0197…`.")
    detail: dict[str, Any]
    request_id: str | None = None
    hash: str = Field(description="SHA-256 over this entry and the hash before it.")


class AuditCheck(Frozen):
    """The outcome of reading the whole chain again."""

    entries: int = Field(ge=0)
    intact: bool
    first_broken_seq: int | None = None
