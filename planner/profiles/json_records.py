"""JSON output of benchmark tools: one value, or several in sequence (JSON lines, appended runs).

The parser accepts infinity, because SGLang writes an unlimited rate that way; validation rejects it by field name where
a number is required.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from fleet.errors import DocumentError, Problem

_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Record:
    """One JSON object of a text, and its first line."""

    data: Mapping[str, Any]
    line: int


def json_records(text: str, *, name: str) -> list[Record]:
    """Every object in the text; an array stands for the objects in it."""
    found = [record for value, line in _values(text.lstrip("\ufeff"), name) for record in _objects(value, line, name)]
    if not found:
        raise DocumentError(name=name, problems=[Problem("", "is empty, expected at least one JSON object")])
    return found


def at(data: Any, *path: str) -> Any:
    """The value at a path of keys, None where there is none."""
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def scaled(value: Any, factor: float) -> Any:
    """A number in another unit; any other value unchanged, for validation to reject."""
    return value * factor if is_number(value) else value


def per_request(total: Any, requests: Any) -> Any:
    """A mean; None without a divisor."""
    return total / requests if is_number(total) and is_number(requests) and requests > 0 else None


def is_number(value: Any) -> TypeGuard[float]:
    """Whether JSON had a number here, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _values(text: str, name: str) -> Iterator[tuple[Any, int]]:
    position, counted, line = 0, 0, 1
    while (position := _SPACE.match(text, position).end()) < len(text):  # type: ignore[union-attr] # matches nothing too
        line, counted = line + text.count("\n", counted, position), position
        try:
            value, position = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            message = f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]}, column {error.colno}"
            raise DocumentError(name=name, problems=[Problem("", message, error.lineno)]) from error
        except RecursionError:
            raise DocumentError(name=name, problems=[Problem("", "is nested too deeply", line)]) from None
        yield value, line


def _objects(value: Any, line: int, name: str) -> Iterator[Record]:
    for item in value if isinstance(value, Sequence) and not isinstance(value, str) else [value]:
        if not isinstance(item, Mapping):
            shown = json.dumps(item)[:60]
            raise DocumentError(name=name, problems=[Problem("", f"expected a JSON object, got {shown}", line)])
        yield Record(item, line)
