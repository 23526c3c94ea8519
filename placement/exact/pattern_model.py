"""The pattern formulation: how many GPUs use each pattern, and a bisection for the lowest feasible ceiling.

docs/explanation/placement/exact.md.  The program has no objective.  An infeasible ceiling rules out every lower one,
so the bound is proven whenever time runs out.
"""

from dataclasses import dataclass, field

import numpy as np

from fleet.solvers import Deadline, Solver, SolveStatus
from placement.arrays import Floats, Ints
from placement.exact.gpu_patterns import SLACK, Patterns
from placement.exact.program import Program, Variable, is_set, limits_after_building


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
