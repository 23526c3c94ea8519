"""Sequences that follow weights as closely as whole requests can.

Tijdeman's rule for the chairman assignment problem (Discrete Mathematics 32, 1980): with weights w of sum 1 over m
names, after every k choices each name has had k w choices to within 1 - 1 / (2 m - 2).

    credit_i = k w_i - n_i;   eligible: credit_i >= 1 / (2 m - 2);   choose the eligible i that is due first,
    with the least (1 - 1 / (2 m - 2) - credit_i) / w_i

The credit of a name that cannot be chosen for a while would grow without limit, and the name would be flooded
afterwards; so it stays within `MAX_CREDIT`.
"""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

NameT = TypeVar("NameT")

MAX_CREDIT = 2.0
_TINY = 1e-9  # for rounding of sums of weights


class WeightedRoundRobin(Generic[NameT]):
    def __init__(self, weights: Mapping[NameT, float], *, credits_before: Mapping[NameT, float] | None = None) -> None:
        """`weights` need not sum to 1; names of weight 0 are never due.  Names that stay keep their credits."""
        total = sum(weights.values())
        if not weights or total <= 0.0 or min(weights.values()) < 0.0:
            raise ValueError(f"weights: {dict(weights)!r}; allowed: none below 0, and their sum above 0")
        self._weights = {name: weight / total for name, weight in weights.items() if weight > 0.0}
        before = credits_before or {}
        self.credits = {name: before.get(name, 0.0) for name in self._weights}
        self._slack = 1.0 / (2 * len(self._weights) - 2) if len(self._weights) > 1 else 0.0

    def choose(self, usable: Callable[[NameT], bool] = lambda _name: True) -> NameT | None:
        """Return the next name among those that can be chosen; None, without effect, when there is none."""
        able = [name for name in self._weights if usable(name)]
        if not able:
            return None
        for name, weight in self._weights.items():
            self.credits[name] = min(MAX_CREDIT, self.credits[name] + weight)
        chosen = min(able, key=self._due)
        self.credits[chosen] = max(-MAX_CREDIT, self.credits[chosen] - 1.0)
        return chosen

    def _due(self, name: NameT) -> tuple[bool, float]:
        """Order eligible names first, then the name that would exceed the bound soonest."""
        credit = self.credits[name]
        if credit < self._slack - _TINY:
            return True, -credit
        return False, (1.0 - self._slack - credit) / self._weights[name]
