"""The program over fillings, and the search for the least ceiling that it can keep.

docs/placement/exact.md, section 5.  Whether a ceiling can be kept is a question without objective; the least that can
be is found by halving the loads that fillings have.  What is refuted stays refuted for every lower ceiling, so the
bound is proven whenever time runs out.
"""

from dataclasses import dataclass, field

import numpy as np

from fleet.solvers import Deadline, Solver, SolveStatus
from placement.arrays import Floats, Ints
from placement.exact.gpu_patterns import SLACK, Fillings
from placement.exact.program import Program, Variable, after_building, is_set


@dataclass(frozen=True, eq=False)
class FillingModel:
    """How often each filling is used, and how many copies each expert then has."""

    fillings: Fillings
    ceiling: float
    program: Program = field(default_factory=lambda: Program("fillings"))
    used: dict[tuple[int, int], Variable] = field(default_factory=dict)  # z[k,p]
    counts: dict[tuple[int, int], Variable] = field(default_factory=dict)  # y[e,c]
    holding: dict[int, list[tuple[Variable, float]]] = field(default_factory=dict)  # copy -> fillings with it

    @classmethod
    def of(cls, fillings: Fillings, *, ceiling: float) -> "FillingModel":
        """With the fillings that the ceiling allows, and no rows yet."""
        model = cls(fillings, ceiling)
        for k, kind in enumerate(fillings.kinds):
            for p in np.flatnonzero(kind.loads <= ceiling + SLACK).tolist():
                used = model.used[k, p] = model.program.count(f"used_{k}_{p}", most=len(kind.gpus))
                for copy in kind.copies[p].tolist():
                    model.holding.setdefault(copy, []).append((used, 1.0))
        for copy in model.holding:
            expert, count = fillings.copies[copy]
            model.counts[expert, count] = model.program.choice(f"copies_{expert}_{count}")
        return model

    @property
    def can_hold_all(self) -> bool:
        """Whether every expert and every kind of GPU has a filling at all."""
        experts = {expert for expert, _ in self.counts}
        kinds = {k for k, _ in self.used}
        return len(experts) == len({e for e, _ in self.fillings.copies}) and len(kinds) == len(self.fillings.kinds)

    def found(self) -> Ints:
        """After a run: [slots], GPU by GPU as they are numbered."""
        on_gpu: dict[int, list[int]] = {}
        for k, kind in enumerate(self.fillings.kinds):
            chosen = [p for (at, p), used in self.used.items() if at == k for _ in range(round(used.varValue or 0.0))]
            for gpu, p in zip(kind.gpus.tolist(), chosen, strict=True):
                on_gpu[gpu] = [self.fillings.copies[copy][0] for copy in kind.copies[p].tolist()]
        return np.array([expert for gpu in sorted(on_gpu) for expert in on_gpu[gpu]], dtype=np.int64)

    def peak(self) -> float:
        """After a run: the greatest load of a filling that is used."""
        return max(float(self.fillings.kinds[k].loads[p]) for (k, p), used in self.used.items() if is_set(used))


def add_fillings(model: FillingModel) -> None:
    """fillings[k]: every GPU has one."""
    for k, kind in enumerate(model.fillings.kinds):
        used = [(z, 1.0) for (at, _), z in model.used.items() if at == k]
        model.program.equal(f"fillings_{k}", used, len(kind.gpus))


def add_one_count(model: FillingModel) -> None:
    """one_count[e]: an expert has one number of copies."""
    for expert in {expert for expert, _ in model.counts}:
        counts = [(y, 1.0) for (e, _), y in model.counts.items() if e == expert]
        model.program.equal(f"one_count_{expert}", counts, 1)


def add_filled(model: FillingModel) -> None:
    """filled[e,c]: so many fillings hold a copy."""
    for copy, holding in model.holding.items():
        expert, count = model.fillings.copies[copy]
        y = model.counts[expert, count]
        model.program.equal(f"filled_{expert}_{count}", [*holding, (y, -float(count))], 0)


def within_ceiling(model: FillingModel) -> FillingModel:
    """The whole program: any answer keeps the ceiling."""
    add_fillings(model)
    add_one_count(model)
    add_filled(model)
    model.program.minimise(())
    return model


def least_ceiling(
    fillings: Fillings, *, solver: Solver, deadline: Deadline
) -> tuple[Ints | None, float | None, SolveStatus]:
    """The slots of the best layer, the least load not refuted, and how it ended.

    No slots: nothing better than what the fillings were listed for was found, and where the status is OPTIMAL nothing
    is.  No load: every one was refuted.
    """
    loads, gap = fillings.loads, deadline.limits.relative_gap
    low = int(np.searchsorted(loads, 1 - SLACK))  # below 1 nothing can be, as loads are 1 in the mean
    high, best = len(loads), None
    at = high - 1  # the loosest first: mostly nothing better exists
    while low < high and not _near(loads, low, high, gap=gap):
        begun_s = deadline.limits.clock_s()
        model = FillingModel.of(fillings, ceiling=float(loads[at]))
        status = _status(model, solver=solver, deadline=deadline, begun_s=begun_s)
        if status is SolveStatus.TIME_LIMIT:
            return best, float(loads[low]), SolveStatus.FEASIBLE
        if status is SolveStatus.INFEASIBLE:
            low = at + 1
        else:
            best, high = model.found(), int(np.searchsorted(loads, model.peak() - SLACK))
        at = (low + high) // 2
    return best, float(loads[low]) if low < len(loads) else None, SolveStatus.OPTIMAL


def _near(loads: Floats, low: int, high: int, *, gap: float) -> bool:
    """Whether what is found is near enough to what is refuted."""
    return high < len(loads) and float(loads[high]) * (1 - gap) < float(loads[low])


def _status(model: FillingModel, *, solver: Solver, deadline: Deadline, begun_s: float) -> SolveStatus:
    if not model.can_hold_all:
        return SolveStatus.INFEASIBLE
    program = within_ceiling(model).program
    status = program.run(solver=solver, limits=after_building(deadline, begun_s=begun_s)).status
    return SolveStatus.OPTIMAL if status.has_mix else status
