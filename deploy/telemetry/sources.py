"""What a recorder can look at beside sockets: one small protocol for all of it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from faults.observations import Observation


class Source(Protocol):
    """Something outside the job that tells of it.  Every file and every answer is bounded by its source."""

    name: str
    period_s: float

    def look(self, now_s: float) -> Sequence[Observation]:
        """What is to be seen now.  Raises OSError where there is nothing to look at; the recorder counts it."""
        ...

    def close(self) -> None:
        """Give back what was opened."""
        ...


class Due(NamedTuple):
    """When a source is looked at next."""

    at_s: float
    source: Source


class Round:
    """All sources, each at its own period."""

    def __init__(self, sources: Sequence[Source], *, steady_s: float) -> None:
        self._due = [Due(steady_s, source) for source in sources]

    def due(self, steady_s: float) -> Iterator[Source]:
        """Those whose time has come.  Periods that were missed are not made up for."""
        for at, (due_s, source) in enumerate(self._due):
            if due_s <= steady_s:
                self._due[at] = Due(max(due_s + source.period_s, steady_s), source)
                yield source
