"""Differences between the stored version of a document and the one that a write would store."""

from typing import Any

from pydantic import Field

from fleet.documents import Frozen


class FieldChange(Frozen):
    """A field that a write would change."""

    path: str = Field(description="Such as `health.p99_ms`; empty: the whole document.")
    now: Any = Field(description="Null: not set.")
    planned: Any
