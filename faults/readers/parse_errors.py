"""Counts of malformed records.  The keys are fixed texts, never input, so a file cannot grow them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType


class MalformedError(Exception):
    """A record that breaks its format; the message is the kind of defect, without the value."""


class ParseErrors:
    """The number of malformed records by source and defect."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, source: str, defect: str, *, times: int = 1) -> None:
        """Count one record.  `source` is the kind of file, `defect` a short description."""
        if times:
            self._counts[f"{source}: {defect}"] += times

    def include(self, counts: Mapping[str, int]) -> None:
        """Add the counts of another process."""
        self._counts.update(counts)

    @contextmanager
    def skipping(self, source: str) -> Iterator[None]:
        """Count a MalformedError raised inside, and continue after the block."""
        try:
            yield
        except MalformedError as error:
            self.add(source, str(error))

    @property
    def total(self) -> int:
        return self._counts.total()

    def counts(self) -> Mapping[str, int]:
        """Return the counts by kind, in alphabetical order."""
        return MappingProxyType(dict(sorted(self._counts.items())))
