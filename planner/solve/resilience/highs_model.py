"""A mix program that stays loaded in HiGHS, so that each run starts from the last basis after rows are added.

The PuLP program remains the reference: HiGHS loads it once, each later row goes to both, and values are written back to
its variables.  CBC loads the whole program for each run.
"""

from collections.abc import Sequence

import highspy
import numpy as np
import numpy.typing as npt
import pulp

from fleet.solvers import (
    FEASIBILITY_TOLERANCE,
    NO_HEURISTICS,
    Limits,
    Outcome,
    Solver,
    highs_outcome,
    run,
)
from planner.solve.ilp import MixModel
from planner.solve.ilp.model import Variable

Floats = npt.NDArray[np.float64]
KINDS = highspy.HighsModelStatus


class HighsMix:
    def __init__(self, model: MixModel, *, solver: Solver, seed: int) -> None:
        self.model, self._solver = model, solver
        loader = pulp.HiGHS(mip=False, msg=False, threads=1, random_seed=seed)
        loader.createAndConfigureSolver(model.program)
        loader.buildSolverModel(model.program)
        self._highs: highspy.Highs = model.program.solverModel
        for option in ("mip_feasibility_tolerance", "primal_feasibility_tolerance"):
            self._highs.setOptionValue(option, FEASIBILITY_TOLERANCE)
        self._defaults = {option: self._highs.getOptionValue(option)[1] for option in NO_HEURISTICS}
        self._variables = sorted(model.program.variables(), key=lambda variable: int(variable.index))
        whole = [variable.index for variable in self._variables if variable.cat == pulp.LpInteger]
        self._whole = np.array(whole, dtype=np.int32)
        self.values: Floats = np.zeros(len(self._variables))

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

    def optimise(self, limits: Limits, *, start: Floats | None, heuristics: bool) -> Outcome:
        """The integer program, from a start if there is one."""
        if self._solver is Solver.CBC:
            outcome = run(self.model.program, solver=self._solver, limits=limits)
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

    def between(self, least: Sequence[float], most: Sequence[float] | None, limits: Limits) -> Outcome:
        """The best solution by HiGHS with replicas inside these bounds, which are then removed again."""
        replicas = self.model.replicas
        columns = np.array([n.index for n in replicas.values()], dtype=np.int32)
        low = np.array([float(least[o]) for o in replicas])
        free = np.array([highspy.kHighsInf if n.upBound is None else float(n.upBound) for n in replicas.values()])
        high = free if most is None else np.array([float(most[o]) for o in replicas])
        self._highs.changeColsBounds(len(columns), columns, low, np.maximum(low, high))
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
