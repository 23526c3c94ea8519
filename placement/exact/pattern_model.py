"""The pattern formulation: how many GPUs use each pattern, and a bisection for the lowest feasible ceiling.

docs/explanation/placement/exact.md.  A pattern is a set of copies of different experts for one GPU.  Loads add up to
1, so under a ceiling just above 1 no GPU can be far below 1 either: a few hundred of millions of patterns remain.  The
program counts patterns instead of naming GPUs, so equal GPUs cause no symmetry.  It has no objective.  An infeasible
ceiling rules out every lower one, so the bound is proven whenever time runs out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from fleet.solvers import Deadline, Solver, SolveStatus
from placement.arrays import Floats, Ints
from placement.exact.assignment import Case
from placement.exact.program import Program, Variable, is_set, limits_after_building

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


@dataclass(frozen=True, eq=False)
class PatternModel:
    """The program for one ceiling."""

    patterns: Patterns
    ceiling: float
    program: Program = field(default_factory=lambda: Program("patterns"))
    used: dict[tuple[int, int], Variable] = field(default_factory=dict)  # z[k,p]
    counts: dict[tuple[int, int], Variable] = field(default_factory=dict)  # y[e,c]
    holding: dict[int, list[tuple[Variable, float]]] = field(default_factory=dict)  # copy -> patterns that hold it

    @classmethod
    def of(cls, patterns: Patterns, *, ceiling: float) -> "PatternModel":
        """The model with the patterns that the ceiling allows, and without constraints."""
        model = cls(patterns, ceiling)
        for k, each in enumerate(patterns.classes):
            for p in np.flatnonzero(each.loads <= ceiling + SLACK).tolist():
                used = model.used[k, p] = model.program.integer(f"used_{k}_{p}", upper=len(each.gpus))
                for copy in each.copies[p].tolist():
                    model.holding.setdefault(copy, []).append((used, 1.0))
        for copy in model.holding:
            expert, count = patterns.copies[copy]
            model.counts[expert, count] = model.program.binary(f"count_{expert}_{count}")
        return model

    @property
    def covers_all(self) -> bool:
        experts = {expert for expert, _ in self.counts}
        classes = {k for k, _ in self.used}
        return len(experts) == len({e for e, _ in self.patterns.copies}) and len(classes) == len(self.patterns.classes)

    def found(self) -> Ints:
        """After a run: [slots], GPU by GPU."""
        on_gpu: dict[int, list[int]] = {}
        for k, each in enumerate(self.patterns.classes):
            chosen = [p for (at, p), used in self.used.items() if at == k for _ in range(round(used.varValue or 0.0))]
            for gpu, p in zip(each.gpus.tolist(), chosen, strict=True):
                on_gpu[gpu] = [self.patterns.copies[copy][0] for copy in each.copies[p].tolist()]
        return np.array([expert for gpu in sorted(on_gpu) for expert in on_gpu[gpu]], dtype=np.int64)

    def max_load(self) -> float:
        """After a run: the greatest load of a used pattern."""
        return max(float(self.patterns.classes[k].loads[p]) for (k, p), used in self.used.items() if is_set(used))


def add_patterns(model: PatternModel) -> None:
    """patterns[k]: every GPU has one pattern."""
    for k, each in enumerate(model.patterns.classes):
        used = [(z, 1.0) for (at, _), z in model.used.items() if at == k]
        model.program.equal(f"patterns_{k}", used, len(each.gpus))


def add_one_count(model: PatternModel) -> None:
    """one_count[e]: an expert has one number of copies."""
    for expert in {expert for expert, _ in model.counts}:
        counts = [(y, 1.0) for (e, _), y in model.counts.items() if e == expert]
        model.program.equal(f"one_count_{expert}", counts, 1)


def add_filled(model: PatternModel) -> None:
    """filled[e,c]: as many GPUs hold a copy as there are copies."""
    for copy, holding in model.holding.items():
        expert, count = model.patterns.copies[copy]
        y = model.counts[expert, count]
        model.program.equal(f"filled_{expert}_{count}", [*holding, (y, -float(count))], 0)


def within_ceiling(model: PatternModel) -> PatternModel:
    """The whole program: every solution keeps the ceiling."""
    add_patterns(model)
    add_one_count(model)
    add_filled(model)
    model.program.minimise(())
    return model


def lowest_ceiling(
    patterns: Patterns, *, solver: Solver, deadline: Deadline
) -> tuple[Ints | None, float | None, SolveStatus]:
    """The slots of the best layer, the lowest load that is not ruled out, and the status.

    No slots: nothing better than the incumbent was found, and with status OPTIMAL nothing better exists.  No load:
    every load is ruled out.
    """
    loads, gap = patterns.loads, deadline.limits.relative_gap
    low = int(np.searchsorted(loads, 1 - SLACK))  # the mean load is 1, so the maximum is not below
    high, best = len(loads), None
    at = high - 1  # the highest first: mostly nothing better exists
    while low < high and not _within_gap(loads, low, high, gap=gap):
        begun_s = deadline.limits.clock_s()
        model = PatternModel.of(patterns, ceiling=float(loads[at]))
        status = _status(model, solver=solver, deadline=deadline, begun_s=begun_s)
        if status is SolveStatus.TIME_LIMIT:
            return best, float(loads[low]), SolveStatus.FEASIBLE
        if status is SolveStatus.INFEASIBLE:
            low = at + 1
        else:
            best, high = model.found(), int(np.searchsorted(loads, model.max_load() - SLACK))
        at = (low + high) // 2
    return best, float(loads[low]) if low < len(loads) else None, SolveStatus.OPTIMAL


def _within_gap(loads: Floats, low: int, high: int, *, gap: float) -> bool:
    return high < len(loads) and float(loads[high]) * (1 - gap) < float(loads[low])


def _status(model: PatternModel, *, solver: Solver, deadline: Deadline, begun_s: float) -> SolveStatus:
    if not model.covers_all:
        return SolveStatus.INFEASIBLE
    program = within_ceiling(model).program
    status = program.run(solver=solver, limits=limits_after_building(deadline, begun_s=begun_s)).status
    return SolveStatus.OPTIMAL if status.has_mix else status
