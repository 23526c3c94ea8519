"""Cursor paging: stable under concurrent writes, unlike offsets."""

from typing import Annotated, Generic, TypeVar

from pydantic import Field

from fleet.documents import Frozen

ItemT = TypeVar("ItemT")

PAGE_LIMIT_MAX = 200

PageLimit = Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX, description="Maximum number of items per page.")]
Cursor = Annotated[str, Field(max_length=200, description="`next_cursor` of the previous page; opaque.")]


class Page(Frozen, Generic[ItemT]):
    """One page of a list, newest first."""

    items: tuple[ItemT, ...]
    next_cursor: str | None = Field(default=None, description="The cursor of the next page; null on the last page.")
