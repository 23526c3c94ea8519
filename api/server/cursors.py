"""Reads and writes cursors: the start of the next page, opaque to callers so that the format may change."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Query

from api.schemas.pages import Cursor, Page, PageLimit
from api.server.dependencies import parameters_of
from api.server.problems import ProblemError, invalid

ItemT = TypeVar("ItemT")

INT32_MAX = 2**31 - 1  # the maximum of both databases' INTEGER columns


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The query of a list.  A list reads one item more than the limit: the extra item means that a next page exists."""

    limit: Annotated[PageLimit, Query()] = 50
    cursor: Annotated[Cursor | None, Query()] = None

    def start(self, kind: type) -> Any:
        """Return the position of the cursor; 422 for a cursor of another service; None without a cursor."""
        if self.cursor is None:
            return None
        try:
            position = json.loads(base64.urlsafe_b64decode(self.cursor + "=" * (-len(self.cursor) % 4)))
        except (binascii.Error, ValueError, RecursionError):
            raise _unknown() from None
        if not isinstance(position, list) or [type(part) for part in position] != [kind] or not _storable(*position):
            raise _unknown()
        return position[0]

    def page(self, found: Sequence[ItemT], *, position: Callable[[ItemT], str | int]) -> Page[ItemT]:
        items = tuple(found[: self.limit])
        more = len(found) > self.limit
        return Page[ItemT](items=items, next_cursor=write_cursor(position(items[-1])) if more else None)


Paging = Annotated[PageQuery, parameters_of(PageQuery)]


def write_cursor(position: str | int) -> str:
    return base64.urlsafe_b64encode(json.dumps([position]).encode()).decode().rstrip("=")


def _storable(part: str | int) -> bool:
    if isinstance(part, int):
        return 0 <= part <= INT32_MAX
    return part.isprintable() and part.isascii()  # keeps NUL and lone surrogates from the database


def _unknown() -> ProblemError:
    return invalid("query.cursor", "not a cursor of this list; allowed: next_cursor of the previous page")
