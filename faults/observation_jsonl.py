"""An observation as one line of JSON and back, without loss: between processes, in bundles, in recording folders.

`[at_s, node, rank, peer, kind, [values...]]`: a list rather than a mapping, because a recorder writes hundreds a
second.
"""

import json
import types
from collections.abc import Callable, Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

from faults.observations import Observation, Values

_NAMES: Mapping[str, str] = {  # in files and batches, where it is not the class's own
    "SocketPoll": "Look",
    "PointToPoint": "Pass",
    "FlightProgress": "Flight",
    "OperationCounts": "Counts",
    "DeviceCounter": "Device",
    "OperationDuration": "Took",
    "ExternalFinding": "Told",
}
KIND_NAMES: Mapping[type[Values], str] = {kind: _NAMES.get(kind.__name__, kind.__name__) for kind in get_args(Values)}
KINDS: Mapping[str, type[Values]] = {name.lower(): kind for kind, name in KIND_NAMES.items()}

MAX_COUNT = 2**63 - 1
MAX_CHARACTERS = 1024
FARTHEST = 1e300  # so that sums stay finite

Check = Callable[[Any], Any]  # returns the value in its own type, or raises ValueError


def to_line(observation: Observation) -> str:
    """Return the line without a line end."""
    at_s, node, values, rank, peer = observation
    return json.dumps([at_s, node, rank, peer, KIND_NAMES[type(values)].lower(), values], separators=(",", ":"))


def from_line(line: str | bytes) -> Observation:
    """Parse a line; raise ValueError if it is malformed."""
    try:
        return from_list(json.loads(line))
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def from_list(found: Any) -> Observation:
    if type(found) is not list or len(found) != 6:
        raise ValueError("expected a list of time, node, rank, peer, kind, values")
    at_s, node, rank, peer, name, values = found
    if type(name) is not str or name not in KINDS:
        raise ValueError("expected a known kind")
    return Observation(_float(at_s), _int(node), from_values(KINDS[name], values), _index(rank), _index(peer))


def from_values(kind: type[Values], values: Any) -> Values:
    """Build one kind's values from a parsed list; trailing ones with defaults may be absent."""
    checks = _CHECKS[kind]
    least = len(checks) - len(kind._field_defaults)
    if type(values) is not list or not least <= len(values) <= len(checks):
        raise ValueError("expected the kind's values")
    return kind(*(check(value) for check, value in zip(checks, values, strict=False)))


def _float(value: Any) -> float:
    if type(value) not in (int, float) or not -FARTHEST < value < FARTHEST:
        raise ValueError("expected a finite number")
    return float(value)


def _int(value: Any) -> int:
    if type(value) is not int or not -1 <= value <= MAX_COUNT:
        raise ValueError("expected a count")
    return value


def _str(value: Any) -> str:
    if type(value) is not str or len(value) > MAX_CHARACTERS:
        raise ValueError("expected a short text")
    return value


def _index(value: Any) -> int | None:
    return None if value is None else _int(value)


def _check(hint: Any) -> Check:
    """Return the check of a type as the kinds use them: numbers, texts, optional ones and tuples of them."""
    plain: Mapping[Any, Check] = {int: _int, float: _float, str: _str}
    if hint in plain:
        return plain[hint]
    if get_origin(hint) in (Union, types.UnionType):
        return _optional(_check(next(part for part in get_args(hint) if part is not type(None))))
    parts = get_args(hint)
    if parts[-1] is Ellipsis:
        return _many(_check(parts[0]))
    return _each([_check(part) for part in parts])


def _optional(inner: Check) -> Check:
    return lambda value: None if value is None else inner(value)


def _many(inner: Check) -> Check:
    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise ValueError("expected a list")
        return tuple(map(inner, value))

    return check


def _each(inner: list[Check]) -> Check:
    def check(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) != len(inner):
            raise ValueError(f"expected a list of {len(inner)}")
        return tuple(one(part) for one, part in zip(inner, value, strict=True))

    return check


_CHECKS: Mapping[type[Values], list[Check]] = {
    kind: [_check(hint) for hint in get_type_hints(kind).values()] for kind in KINDS.values()
}
