"""Lists all combinations of units per class within a cost, the cheapest first.

`bounds` leaves few counts, and the rows of `FeasibilityTest` exclude most of their combinations.  The list grows class
by class.  A partial combination stays if for every row its units plus the units that the remaining money can buy in the
other classes reach the right-hand side.  That purchase is a fractional knapsack, piecewise linear in the money.  The
list is therefore complete for every set of rows; more rows only shorten it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.solve.single_workload.program import Row
from planner.solve.single_workload.table import Classes, Floats, Indices

ROUNDING = 1e-9  # relative, in favour of keeping a combination
INTEGER_TOLERANCE = 1e-6  # units: a count within this distance of a whole number is whole
SAMPLE = 500  # combinations in a sample


@dataclass(frozen=True)
class Box:
    """Ranges of units per class and their cost; the cheaper offers of a class are hired first."""

    classes: Classes
    least: Floats
    most: Floats

    @cached_property
    def steps(self) -> Floats:
        """Per offer, its units between the least and the most of its class."""
        ends = np.cumsum(np.minimum(self.classes.stock, self.most[self.classes.offer_class]))
        first = np.searchsorted(self.classes.offer_class, self.classes.offer_class)
        before = np.concatenate([[0.0], ends])
        low, high = self.least[self.classes.offer_class], self.most[self.classes.offer_class]
        steps = np.clip(ends - before[first], low, high) - np.clip(before[:-1] - before[first], low, high)
        return np.asarray(steps)

    @cached_property
    def open(self) -> Indices:
        """Classes with more than one count left, those with the fewest first."""
        width = self.most - self.least
        order = np.argsort(width, kind="stable")
        return order[width[order] > 0]

    def min_cost_usd_per_h(self) -> float:
        bottom = Box(self.classes, np.zeros(len(self.least)), self.least)
        return float(bottom.steps @ self.classes.price_usd_per_h)

    def extra_usd_per_h(self, group: int) -> Floats:
        """The cost of each count of a class beyond its least."""
        offers = np.flatnonzero(self.classes.offer_class == group)
        counts = np.arange(self.most[group] - self.least[group] + 1)
        steps = self.steps[offers]
        costs = np.cumsum(steps * self.classes.price_usd_per_h[offers])
        return np.asarray(np.interp(counts, np.append(0.0, np.cumsum(steps)), np.append(0.0, costs)))


@dataclass(frozen=True)
class CandidateList:
    """Combinations and their cost, the cheapest first; `is_complete`: there are no others."""

    counts: Floats  # (combination, class)
    cost_usd_per_h: Floats
    is_complete: bool


@dataclass(frozen=True)
class _Partial:
    """Combinations of the classes decided so far; the others are at their least."""

    counts: Floats  # (combination, class)
    spent_usd_per_h: Floats  # (combination,)
    have: Floats  # (row, combination): the left-hand side

    def only(self, kept: Indices | npt.NDArray[np.bool_]) -> "_Partial":
        return _Partial(self.counts[kept], self.spent_usd_per_h[kept], self.have[:, kept])


def list_candidates(box: Box, rows: Sequence[Row], *, at_most_usd_per_h: float, max_combinations: int) -> CandidateList:
    """The combinations inside the box, or a sample of them if there are more than `max_combinations`."""
    limit = at_most_usd_per_h * (1 + ROUNDING)
    growth = _Growth(box, np.array([row.weights for row in rows]), np.array([row.least for row in rows]), limit)
    partial = growth.kept(growth.start(), decided=0)
    is_complete = True
    for decided, group in enumerate(box.open, start=1):
        extensions = growth.extensions(partial, int(group), decided=decided)
        every = max(1, int(extensions.number.sum()) // SAMPLE) if extensions.number.sum() > max_combinations else 1
        is_complete &= every == 1
        partial = growth.kept(growth.grown(partial, int(group), extensions, every=every), decided=decided)
    order = np.argsort(partial.spent_usd_per_h, kind="stable")
    return CandidateList(partial.counts[order], partial.spent_usd_per_h[order], is_complete)


@dataclass(frozen=True)
class _Extensions:
    """Per combination, the number of possible counts of one more class, and the first of them."""

    first: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Growth:
    """The rows over a box, and the cost limit."""

    box: Box
    weights: Floats  # (row, class)
    least: Floats  # (row,)
    limit_usd_per_h: float

    def start(self) -> _Partial:
        spent = np.array([self.box.min_cost_usd_per_h()])
        return _Partial(self.box.least[None], spent, (self.weights @ self.box.least)[:, None])

    def kept(self, partial: _Partial, *, decided: int) -> _Partial:
        """The combinations that can still reach every right-hand side, tested row by row, the newest first."""
        left = self.limit_usd_per_h - partial.spent_usd_per_h
        there = np.flatnonzero(left >= 0)
        for k in reversed(range(len(self.least))):
            reach = partial.have[k, there] + self._bought(k, left[there], decided)
            there = there[reach >= self.least[k] * (1 - ROUNDING)]
        return partial.only(there)

    def extensions(self, partial: _Partial, group: int, *, decided: int) -> _Extensions:
        """The counts of one more class that the money of each combination allows and its rows need."""
        left = self.limit_usd_per_h - partial.spent_usd_per_h
        most = np.searchsorted(self.box.extra_usd_per_h(group), left, side="right")
        least = np.zeros(len(most), dtype=np.int64)
        for k in map(int, np.flatnonzero(self.weights[:, group])):
            missing = self.least[k] * (1 - ROUNDING) - partial.have[k] - self._bought(k, left, decided)
            needed = np.ceil(missing / self.weights[k, group] - INTEGER_TOLERANCE)
            least = np.maximum(least, np.minimum(needed, most).astype(np.int64))
        return _Extensions(least, most - least)

    def grown(self, partial: _Partial, group: int, extensions: _Extensions, *, every: int) -> _Partial:
        """Each combination with each of its counts of one more class, or a sample of them."""
        ends = np.cumsum(extensions.number)
        at = np.arange(0, ends[-1] if len(ends) else 0, every)
        source = np.searchsorted(ends, at, side="right")
        step = at - (ends - extensions.number - extensions.first)[source]
        counts = partial.counts[source]
        counts[:, group] += step
        have = partial.have[:, source] + self.weights[:, group, None] * step
        return _Partial(counts, partial.spent_usd_per_h[source] + self.box.extra_usd_per_h(group)[step], have)

    def _bought(self, row: int, money_usd_per_h: Floats, decided: int) -> Floats:
        """The most of a row that money buys in the undecided classes."""
        money, worth = self._purchases[row]
        return np.asarray(np.interp(money_usd_per_h, money[decided], worth[decided]))

    @cached_property
    def _purchases(self) -> list[tuple[Floats, Floats]]:
        """Per row, the breakpoints of that function for each number of decided classes, the best value first."""
        box, levels = self.box, np.arange(len(self.box.open) + 1)[:, None]
        decided_at = np.full(len(box.least), len(box.open))
        decided_at[box.open] = np.arange(len(box.open))
        found = []
        for weights in self.weights[:, box.classes.offer_class]:
            useful = np.flatnonzero((box.steps > 0) & (weights > 0))
            best = useful[np.argsort(-weights[useful] / box.classes.price_usd_per_h[useful], kind="stable")]
            units = np.where(decided_at[box.classes.offer_class[best]] >= levels, box.steps[best], 0.0)
            corner = np.zeros((len(units), 1))
            money = np.cumsum(units * box.classes.price_usd_per_h[best], axis=1)
            worth = np.cumsum(units * weights[best], axis=1)
            found.append((np.hstack([corner, money]), np.hstack([corner, worth])))
        return found
