"""Windows on the clock of a stream: k lasts from k length_s to (k + 1) length_s, and closes `late_s` after that."""

from collections.abc import Callable, Iterator
from math import floor, isfinite
from typing import Final, Generic, TypeVar

MAX_OPEN: Final = 4  # windows: a clock that is so far ahead is broken
MAX_SILENT: Final = 720  # windows: half an hour of 2.5 s without an observation forgets as much as a day

Of = TypeVar("Of")


class Windows(Generic[Of]):
    def __init__(self, new: Callable[[], Of], *, length_s: float, late_s: float) -> None:
        self._new, self.length_s, self._late_s = new, length_s, late_s
        self._open: dict[int, Of] = {}
        self._next: int | None = None  # the next to close

    def __iter__(self) -> Iterator[Of]:
        return iter(self._open.values())

    def at(self, at_s: float) -> Of | None:
        """Return the open window at a time; None if that window is closed already or the time is impossible."""
        if not isfinite(at_s):
            return None
        index = floor(at_s / self.length_s)
        if self._next is None:
            self._next = index
        if not self._next <= index < self._next + MAX_OPEN:
            return None
        found = self._open.get(index)
        if found is None:
            found = self._open[index] = self._new()
        return found

    def over(self, now_s: float) -> list[tuple[int, Of | None]]:
        """Return the windows closed since the last call, in order; None for a window without observations."""
        if self._next is None or not isfinite(now_s):
            return []
        until = floor((now_s - self._late_s) / self.length_s)
        if until + MAX_OPEN < self._next:  # the first observation had a clock far ahead
            self._next = until
            self._open.clear()
        if until <= self._next:
            return []
        begun = {index for index in self._open if index < until}
        indices = sorted(begun.union(range(max(self._next, until - MAX_SILENT), until)))
        self._next = until
        return [(index, self._open.pop(index, None)) for index in indices]
