"""Shortens a parsed document, so that some of its errors are found without a search for all.

pydantic reports every error.  For a list of four million wrong items that takes two minutes and 8 GB.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

MAX_VALUES = 20_000  # in the shortened document
MAX_ITEMS = 1_000  # of one list or mapping

# Errors that the shortening itself can cause: what is missing or has another length.
_CAUSED = frozenset({"missing", "too_short", "too_long", "value_error", "assertion_error"})


def prune(document: Any) -> tuple[Any, bool]:
    """Return the first parts of a document, and whether they are the whole of it."""
    free_values, whole = MAX_VALUES, True

    def shortened(value: Any) -> Any:
        nonlocal free_values, whole
        if not isinstance(value, dict | list):
            return value
        count = min(len(value), MAX_ITEMS, free_values)
        free_values -= count
        whole = whole and count == len(value)
        if isinstance(value, list):
            return [shortened(item) for item in value[:count]]
        return {key: shortened(item) for key, item in islice(value.items(), count)}

    return shortened(document), whole


def reliable_errors(items: Sequence[Any]) -> list[Any]:
    """Select the errors of a shortened document that the whole one has too."""
    return [item for item in items if item["type"] not in _CAUSED]
