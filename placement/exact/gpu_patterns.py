"""All patterns of one GPU that a better placement could use: sets of copies of different experts.

docs/explanation/placement/exact.md.  All loads add up to 1, so under a ceiling just above 1 no GPU can be far below 1
either: a few hundred of millions of patterns remain.  A program counts patterns instead of naming GPUs, so equal GPUs
cause no symmetry.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fleet.solvers import Deadline
from placement.arrays import Floats, Ints
from placement.exact.assignment import Case

MAX_PARTIAL = 400_000  # partial patterns at once
SLACK = 1e-9  # of a load: sums in another order


@dataclass(frozen=True, eq=False)
class GpuClass:
    """Interchangeable GPUs and their patterns."""

    gpus: Ints
    copies: Ints  # [patterns, slots]: positions in `Patterns.copies`
    loads: Floats  # [patterns]: over the even share


@dataclass(frozen=True, eq=False)
class Patterns:
    copies: list[tuple[int, int]]  # (expert, number of its copies), by rising expert
    classes: tuple[GpuClass, ...]

    @property
    def count(self) -> int:
        """The patterns of all classes together."""
        return sum(len(each.loads) for each in self.classes)

    @cached_property
    def loads(self) -> Floats:
        return np.unique(np.concatenate([each.loads for each in self.classes]))


def list_patterns(case: Case, *, ceiling: float, deadline: Deadline) -> Patterns | None:
    """All patterns of placements at or under a ceiling; None where they are too many, or the deadline passes."""
    copies = [(e, c) for e in range(case.experts) for c in range(1, case.max_copies + 1)]
    classes = []
    for gpus in case.gpu_classes:
        share = float(case.shares[gpus[0]])
        weights = np.array([case.loads[e] / c / share for e, c in copies])
        lower = (1 - (1 - share) * ceiling) / share
        listing = _Listing(copies, weights, lower=lower - SLACK, upper=ceiling + SLACK, deadline=deadline)
        found = listing.patterns(int(case.slots_of_gpu[gpus[0]]))
        if found is None:
            return None
        classes.append(GpuClass(np.array(gpus, dtype=np.int64), found, weights[found].sum(axis=1)))
    return Patterns(copies, tuple(classes))


@dataclass(frozen=True, eq=False)
class _Listing:
    """Enumerates sets of copies of different experts whose loads add up to a value between two limits."""

    copies: list[tuple[int, int]]
    weights: Floats
    lower: float
    upper: float
    deadline: Deadline

    def patterns(self, slots: int) -> Ints | None:
        """[patterns, slots]."""
        lightest, heaviest = _completions(self._experts, self.weights, slots)
        rows, loads = np.zeros((1, 0), dtype=np.int64), np.zeros(1)
        for left in reversed(range(slots)):
            parts, partial = [], 0
            for grown in self._grown(rows, loads, lightest[left], heaviest[left]):
                parts.append(grown)
                partial += len(grown[0])
                if partial > MAX_PARTIAL or self.deadline.has_struck:
                    return None
            rows, loads = (np.concatenate(side) for side in zip(*parts, strict=True))
        return rows

    def _grown(self, rows: Ints, loads: Floats, lightest: Floats, heaviest: Floats) -> Iterator[tuple[Ints, Floats]]:
        """Each partial pattern with one more copy, of a later expert than its last, that can still be completed."""
        last = self._experts[rows[:, -1]] if rows.shape[1] else np.full(len(rows), -1)
        for copy, expert in enumerate(self._experts):
            weight, rest = self.weights[copy], expert + 1
            kept = (last < expert) & (loads + (weight + lightest[rest]) <= self.upper)
            kept &= loads + (weight + heaviest[rest]) >= self.lower
            yield np.column_stack([rows[kept], np.full(int(kept.sum()), copy)]), loads[kept] + weight

    @cached_property
    def _experts(self) -> Ints:
        return np.array([expert for expert, _ in self.copies])


def _completions(experts: Ints, weights: Floats, slots: int) -> tuple[Floats, Floats]:
    """[slots, experts + 1] each: the least and the greatest load of so many copies of the experts from one on."""
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
