"""Counting what could not be read.  The kinds are ours, never the data's: no file can fill memory with them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType


class MalformedError(Exception):
    """A record that breaks its format; the message is the kind of defect, without the offending value."""


class ParseErrors:
    """How many malformed records of which kind a source had."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, source: str, defect: str, *, times: int = 1) -> None:
        """One more.  `source` is the kind of file, `defect` says what is wrong in a few words."""
        if times:
            self._counts[f"{source}: {defect}"] += times

    @contextmanager
    def skipping(self, source: str) -> Iterator[None]:
        """Count a MalformedError raised inside and go on behind."""
        try:
            yield
        except MalformedError as error:
            self.add(source, str(error))

    @property
    def total(self) -> int:
        return self._counts.total()

    def counts(self) -> Mapping[str, int]:
        """By kind, in alphabetical order."""
        return MappingProxyType(dict(sorted(self._counts.items())))
