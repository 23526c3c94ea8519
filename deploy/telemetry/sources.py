"""The interface of a recorder's sources other than sockets."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from faults.observations import Observation


class Source(Protocol):
    """A source of observations outside the job.  It bounds every file and reply that it reads."""

    name: str
    period_s: float

    def poll(self, now_s: float) -> Sequence[Observation]:
        """Return the current observations.  Raise OSError, which the recorder counts."""
        ...

    def close(self) -> None:
        """Close what was opened."""
        ...


class Due(NamedTuple):
    """When a source is polled next."""

    at_s: float
    source: Source


class Round:
    """All sources, each with its own period."""

    def __init__(self, sources: Sequence[Source], *, steady_s: float) -> None:
        self._due = [Due(steady_s, source) for source in sources]

    def due(self, steady_s: float) -> Iterator[Source]:
        """Yield the sources that are due.  Missed periods are skipped."""
        for at, (due_s, source) in enumerate(self._due):
            if due_s <= steady_s:
                self._due[at] = Due(max(due_s + source.period_s, steady_s), source)
                yield source
