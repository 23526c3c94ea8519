"""Every way to fill one GPU that could be part of a better placement (docs/placement/exact.md, section 5).

Loads of all GPUs add up, so where none may be above a ceiling just over 1 none can be far below 1 either: of millions
of fillings a few hundred are left.  They are counted, not named after a GPU, so equal GPUs
are no symmetry to a program.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fleet.solvers import Deadline
from placement.arrays import Floats, Ints
from placement.exact.balance_model import Case

MAX_PARTIAL = 400_000  # fillings under way at once
SLACK = 1e-9  # of a load: additions in another order


@dataclass(frozen=True, eq=False)
class Kind:
    """GPUs that are alike, and how they may be filled."""

    gpus: Ints
    copies: Ints  # [fillings, slots]: positions in `Fillings.copies`
    loads: Floats  # [fillings]: over the even share


@dataclass(frozen=True, eq=False)
class Fillings:
    """Of one layer."""

    copies: list[tuple[int, int]]  # (expert, number of its copies), experts rising
    kinds: tuple[Kind, ...]

    @property
    def count(self) -> int:
        """Of all kinds together."""
        return sum(len(kind.loads) for kind in self.kinds)

    @cached_property
    def loads(self) -> Floats:
        """Those that occur, rising."""
        return np.unique(np.concatenate([kind.loads for kind in self.kinds]))


def fillings(case: Case, *, ceiling: float, deadline: Deadline) -> Fillings | None:
    """All that keep a layer at or under a ceiling; None where they are too many to list, or to list in time."""
    if case.slots_of_gpu is None:
        raise AssertionError("fillings need slots that are counted per layer")
    copies = [(e, c) for e in range(case.experts) for c in range(1, case.most_copies + 1)]
    kinds = []
    for gpus in case.alike:
        share = float(case.shares[gpus[0]])
        weights = np.array([case.parts[0, e] / c / share for e, c in copies])
        least = (1 - (1 - share) * ceiling) / share
        slots = int(case.slots_of_gpu[gpus[0]])
        listing = _Listing(copies, weights, least=least - SLACK, most=ceiling + SLACK, deadline=deadline)
        found = listing.filled(slots)
        if found is None:
            return None
        kinds.append(Kind(np.array(gpus, dtype=np.int64), found, weights[found].sum(axis=1)))
    return Fillings(copies, tuple(kinds))


@dataclass(frozen=True, eq=False)
class _Listing:
    """Of one kind's fillings: sets of copies of different experts whose weights add up to what lies between."""

    copies: list[tuple[int, int]]
    weights: Floats
    least: float
    most: float
    deadline: Deadline

    def filled(self, slots: int) -> Ints | None:
        """[fillings, slots]."""
        reach = _reach(self._experts, self.weights, slots)
        rows, loads = np.zeros((1, 0), dtype=np.int64), np.zeros(1)
        for left in reversed(range(slots)):
            parts, partial = [], 0
            for grown in self._grown(rows, loads, reach[0][left], reach[1][left]):
                parts.append(grown)
                partial += len(grown[0])
                if partial > MAX_PARTIAL or self.deadline.has_struck:
                    return None
            rows, loads = (np.concatenate(side) for side in zip(*parts, strict=True))
        return rows

    def _grown(self, rows: Ints, loads: Floats, low: Floats, high: Floats) -> Iterator[tuple[Ints, Floats]]:
        """Each filling with one copy more, of a later expert than its last, where what may follow still fits."""
        last = self._experts[rows[:, -1]] if rows.shape[1] else np.full(len(rows), -1)
        for copy, expert in enumerate(self._experts):
            weight, then = self.weights[copy], expert + 1
            kept = (last < expert) & (loads + (weight + low[then]) <= self.most)
            kept &= loads + (weight + high[then]) >= self.least
            yield np.column_stack([rows[kept], np.full(int(kept.sum()), copy)]), loads[kept] + weight

    @cached_property
    def _experts(self) -> Ints:
        return np.array([expert for expert, _ in self.copies])


def _reach(experts: Ints, weights: Floats, slots: int) -> tuple[Floats, Floats]:
    """[slots, experts + 1] each: the least and the most that so many copies of experts from one on can weigh."""
    count = int(experts[-1]) + 1
    low, high = np.zeros((slots, count + 1)), np.zeros((slots, count + 1))
    lightest = np.array([weights[experts == expert].min() for expert in range(count)])
    heaviest = np.array([weights[experts == expert].max() for expert in range(count)])
    for first in range(count + 1):
        for more in range(1, slots):
            if count - first < more:
                low[more, first], high[more, first] = np.inf, -np.inf
            else:
                low[more, first] = np.sort(lightest[first:])[:more].sum()
                high[more, first] = np.sort(heaviest[first:])[-more:].sum()
    return low, high
