"""Lists how one JSON document differs from another, field by field."""

from collections.abc import Iterator, Mapping
from typing import Any

from api.schemas.differences import FieldChange
from fleet.documents import Path, dotted


def changes(now: Any, planned: Any) -> tuple[FieldChange, ...]:
    """Return the fields that differ.  A list is one field; what one document lacks is null."""
    return tuple(
        FieldChange(path=dotted(path), now=before, planned=after) for path, before, after in _differences(now, planned)
    )


def _differences(now: Any, planned: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(now, Mapping) and isinstance(planned, Mapping):
        for name in dict.fromkeys([*now, *planned]):
            yield from _differences(now.get(name), planned.get(name), (*path, name))
    elif now != planned:
        yield path, now, planned
