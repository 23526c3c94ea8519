"""Typed values out of parsed data.  A boolean is not a number, and neither is NaN."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from faults.readers.parse_errors import MalformedError

MAX = 2**63 - 1  # the kernel's and NCCL's counters have 64 bits; a larger one is misread
LATEST_S = 1e11  # the year 5138
MAX_TEXT = 256  # characters of a name
MAX_INDEX = 1 << 24  # nodes and ranks

Record = Mapping[str, Any]


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)  # one for all: creating it costs as much as a short line


def parse_json(data: bytes | str) -> Any:
    """Parse standard JSON: in UTF-8, no NaN, no Infinity."""
    try:
        return _DECODER.decode(data.decode() if isinstance(data, bytes) else data)
    except (ValueError, RecursionError) as error:
        raise MalformedError("not JSON") from error


def parse_record(data: bytes | str) -> Record:
    found = parse_json(data)
    if not isinstance(found, dict):
        raise MalformedError("not a JSON object")
    return found


def whole(record: Record, key: str, *, maximum: int = MAX, missing: int | None = None) -> int:
    """Return a whole number from 0 to `maximum`; if absent, `missing` if that is given."""
    value = record.get(key, missing)
    if type(value) is not int or not 0 <= value <= maximum:
        raise MalformedError(f"{key} is no whole number in range")
    return value


def number(record: Record, key: str, *, minimum: float = 0.0, maximum: float = float(MAX)) -> float:
    return in_range(record.get(key), key, minimum=minimum, maximum=maximum)


def in_range(value: Any, key: str, *, minimum: float = 0.0, maximum: float = float(MAX)) -> float:
    """Return a finite number in range; `key` names the defect."""
    if type(value) not in (int, float) or not minimum <= value <= maximum:
        raise MalformedError(f"{key} is no number in range")
    return float(value)


def moment(record: Record, key: str) -> float:
    return number(record, key, minimum=-LATEST_S, maximum=LATEST_S)


def optional_whole(record: Record, key: str) -> int | None:
    return None if record.get(key) is None else whole(record, key)


def text(record: Record, key: str, *, missing: str | None = None) -> str:
    value = record.get(key, missing)
    if type(value) is not str or len(value) > MAX_TEXT:
        raise MalformedError(f"{key} is no short text")
    return value


def optional_text(record: Record, key: str) -> str | None:
    return None if record.get(key) is None else text(record, key)


def decimal(value: Any, *, digits: int, defect: str) -> int:
    """Return the number that a text of at most so many ASCII digits holds; `defect` is the error's message."""
    if type(value) is not str or not value.isascii() or not value.isdecimal() or len(value) > digits:
        raise MalformedError(defect)
    return int(value)


def items(record: Record, key: str) -> Sequence[Any]:
    value = record.get(key)
    if not isinstance(value, list | tuple):
        raise MalformedError(f"{key} is no list")
    return value


def mapping(record: Record, key: str) -> Record:
    """Return a nested mapping; empty if absent."""
    value = record.get(key, {})
    if not isinstance(value, dict):
        raise MalformedError(f"{key} is no mapping")
    return value
