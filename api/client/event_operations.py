"""Describes how to follow changes, and reads the stream (sans I/O)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from api.client.calls import Call, as_text, reading
from api.schemas.events import EVENT_STREAM, LAST_EVENT_ID, ChangeEvent

KEEP_ALIVE_S: Final = 15.0  # after so long the service sends a line


@dataclass(slots=True)
class EventStream:
    """Follows changes over any number of connections: each begins after the last number that arrived."""

    call: Call[Any]
    follows: bool
    last_id: str | None = None
    _lines: list[str] = field(default_factory=list)

    def next_call(self) -> Call[Any]:
        """Return the call of the next connection."""
        self._lines.clear()  # of an event that did not arrive whole
        if self.last_id is None:
            return self.call
        return replace(self.call, headers={**self.call.headers, LAST_EVENT_ID: self.last_id})

    def events(self, line: str) -> Iterator[ChangeEvent]:
        """Take the next line of the stream, and yield the event that it completes."""
        if line:
            self._lines.append(line)
            return
        fields = dict(_fields(self._lines))
        self._lines.clear()
        self.last_id = fields.get("id", self.last_id)
        if "data" in fields:
            yield ChangeEvent.model_validate_json(fields["data"], extra="ignore")


def follow_events(*, after: int | None = None, types: Iterable[str] = (), follow: bool = True) -> EventStream:
    """Iterate over what changes, after one event or from now on; a lost connection resumes without a gap.

    `types` are beginnings, such as `target.`.  Without `follow` the iteration ends with the newest event.  GoneError:
    the service has no longer every event after that one; read the state again.
    """
    query: Mapping[str, str] = {
        name: value
        for name, value in {
            "after": str(after) if after is not None else None,
            "type": ",".join(types) or None,
            "follow": "true" if follow else "false",
        }.items()
        if value is not None
    }
    call = replace(reading("/v1/events", as_text), query=query, headers={"Accept": EVENT_STREAM}, work_s=KEEP_ALIVE_S)
    return EventStream(call, follows=follow)


def _fields(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _colon, value = line.partition(":")
        if name:  # else a comment
            yield name, value.removeprefix(" ")
