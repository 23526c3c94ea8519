"""Exponential backoff: the wait doubles after each failure in a row, up to a limit."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Backoff:
    """Counts failures in a row by key.  An unknown key is due at once."""

    first_s: float
    max_s: float
    _failures: dict[Hashable, int] = field(default_factory=dict)
    _due_s: dict[Hashable, float] = field(default_factory=dict)

    def is_due(self, key: Hashable, *, now_s: float) -> bool:
        return now_s >= self._due_s.get(key, now_s)

    def failed(self, key: Hashable, *, now_s: float) -> None:
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        # The exponent is limited first: a target may fail for weeks.
        self._due_s[key] = now_s + min(self.max_s, self.first_s * 2.0 ** min(failures - 1, 30))

    def succeeded(self, key: Hashable) -> None:
        self._failures.pop(key, None)
        self._due_s.pop(key, None)

    def forget_all_but(self, keys: Iterable[Hashable]) -> None:
        for key in self._failures.keys() - set(keys):
            self.succeeded(key)
