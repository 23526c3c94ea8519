"""Reads and writes cursors: the start of the next page, opaque to callers so that the format may change."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from api.schemas.pages import Page
from api.server.problems import ProblemError, invalid

ItemT = TypeVar("ItemT")
Position = tuple[str | int, ...]

INT32_MAX = 2**31 - 1  # the maximum of both databases' INTEGER columns


def page_of(found: Sequence[ItemT], *, limit: int, position: Callable[[ItemT], Position]) -> Page[ItemT]:
    """Build a page from up to one item more than its limit; the extra item means that a next page exists."""
    items = tuple(found[:limit])
    more = len(found) > limit
    return Page[ItemT](items=items, next_cursor=write_cursor(position(items[-1])) if more else None)


def write_cursor(position: Position) -> str:
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


def read_cursor(cursor: str | None, *kinds: type) -> tuple[Any, ...]:
    """Parse a cursor; 422 for a cursor of another service; Nones without a cursor."""
    if cursor is None:
        return (None,) * len(kinds)
    try:
        position = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        raise _unknown() from None
    if not isinstance(position, list) or [type(part) for part in position] != list(kinds):
        raise _unknown()
    if any(not _storable(part) for part in position):
        raise _unknown()
    return tuple(position)


def _storable(part: str | int) -> bool:
    if isinstance(part, int):
        return 0 <= part <= INT32_MAX
    return part.isprintable() and part.isascii()  # keeps NUL and lone surrogates from the database


def _unknown() -> ProblemError:
    return invalid("query.cursor", "not a cursor of this list; allowed: next_cursor of the previous page")
