"""HiGHS without output, on one thread: programs from arrays, and PuLP programs that stay loaded."""

from collections.abc import Iterable, Sequence
from typing import Any

import highspy
import numpy as np
import numpy.typing as npt
import pulp

from fleet.solvers import FEASIBILITY_TOLERANCE, NO_HEURISTICS, Limits, Outcome, Solver, highs_outcome, run
from planner.solve.ilp.model import Variable

Floats = npt.NDArray[np.float64]
Entries = tuple[Any, Any, Any]  # arrays of columns, rows and coefficients


def silent_highs(**options: float | str) -> highspy.Highs:
    highs = highspy.Highs()
    for option, value in {"output_flag": False, "threads": 1, **options}.items():
        highs.setOptionValue(option, value)
    return highs


def linear_program(
    entries: Iterable[Entries], *, cost: Floats, upper: Floats, row_lower: Floats, row_upper: Floats
) -> highspy.HighsLp:
    """A minimisation over columns of at least 0; the coefficients of a column keep the order of the entries."""
    columns, rows, weights = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    order = np.argsort(columns, kind="stable")
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(cost), len(row_lower)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, np.zeros(len(cost)), upper
    lp.row_lower_, lp.row_upper_ = row_lower, row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(columns[order], np.arange(len(cost) + 1)).astype(np.int32)
    lp.a_matrix_.index_ = rows[order].astype(np.int32)
    lp.a_matrix_.value_ = weights[order]
    return lp


class LoadedProgram:
    """A PuLP program that stays loaded in HiGHS, so that each run starts from the last basis after rows are added.

    The PuLP program remains the only description of the rows: HiGHS loads it once, and each later row goes to both.
    CBC loads the whole program for each run.
    """

    def __init__(self, program: Any, *, seed: int) -> None:
        loader = pulp.HiGHS(mip=False, msg=False, threads=1, random_seed=seed)
        loader.createAndConfigureSolver(program)
        loader.buildSolverModel(program)
        self._program, self._highs = program, program.solverModel
        for option in ("mip_feasibility_tolerance", "primal_feasibility_tolerance"):
            self._highs.setOptionValue(option, FEASIBILITY_TOLERANCE)
        self._defaults = {option: self._highs.getOptionValue(option)[1] for option in NO_HEURISTICS}
        self._variables = sorted(program.variables(), key=lambda variable: int(variable.index))
        whole = [variable.index for variable in self._variables if variable.cat == pulp.LpInteger]
        self._whole = np.array(whole, dtype=np.int32)
        self.values: Floats = np.zeros(len(self._variables))  # of the last solution

    def value(self, variable: Variable) -> float:
        return float(self.values[variable.index])

    def add_row(self, terms: Sequence[tuple[Variable, float]], least: float) -> None:
        """Add a row `terms >= least` that the PuLP program already has."""
        columns = np.array([x.index for x, _ in terms], dtype=np.int32)
        self._highs.addRow(least, highspy.kHighsInf, len(terms), columns, np.array([weight for _, weight in terms]))

    def relax(self, limits: Limits) -> Outcome:
        """The LP relaxation, from the last basis."""
        self._set_kind(highspy.HighsVarType.kContinuous)
        return self._run(limits, integer=False)

    def optimise(self, solver: Solver, limits: Limits, *, start: Floats | None, heuristics: bool = True) -> Outcome:
        """The integer program, from a start if there is one; CBC starts without one."""
        if solver is Solver.CBC:
            outcome = run(self._program, solver=solver, limits=limits)
            self.values = np.array([variable.varValue or 0.0 for variable in self._variables])
            return outcome
        for option, value in (self._defaults if heuristics else NO_HEURISTICS).items():
            self._highs.setOptionValue(option, value)
        self._set_kind(highspy.HighsVarType.kInteger)
        if start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = start.tolist()
            self._highs.setSolution(solution)
        return self._run(limits, integer=True)

    def between(self, variables: Sequence[Variable], low: Floats, high: Floats | None, limits: Limits) -> Outcome:
        """The best whole numbers by HiGHS with variables inside these bounds, which are then removed again."""
        columns = np.array([variable.index for variable in variables], dtype=np.int32)
        free = np.array([highspy.kHighsInf if x.upBound is None else float(x.upBound) for x in variables])
        self._highs.changeColsBounds(len(columns), columns, low, np.maximum(low, free if high is None else high))
        self._set_kind(highspy.HighsVarType.kInteger)
        outcome = self._run(limits, integer=True)
        self._highs.changeColsBounds(len(columns), columns, np.zeros(len(columns)), free)
        return outcome

    def write_back(self, values: Floats) -> None:
        for variable, value in zip(self._variables, values, strict=True):
            variable.varValue = float(value)

    def _set_kind(self, kind: highspy.HighsVarType) -> None:
        self._highs.changeColsIntegrality(len(self._whole), self._whole, np.full(len(self._whole), kind))

    def _run(self, limits: Limits, *, integer: bool) -> Outcome:
        highs = self._highs
        highs.setOptionValue("time_limit", limits.time_limit_s)
        highs.setOptionValue("mip_rel_gap", limits.relative_gap)
        highs.run()
        outcome = highs_outcome(highs, integer=integer)
        if outcome.status.has_mix:
            self.values = np.array(highs.getSolution().col_value)
        return outcome
