"""P7 as a persistent HiGHS model: rows are added, and each run starts from the end of the last one.

The PuLP program remains the only description of the rows: HiGHS loads it once, and each later row goes to both.
"""

from collections.abc import Sequence

import highspy
import numpy as np
import numpy.typing as npt
import pulp

from fleet.solvers import FEASIBILITY_TOLERANCE, Limits, Outcome, Solver, highs_outcome, run
from planner.horizon import program as programs
from planner.horizon.plan import Counts, units_of
from planner.solve.ilp.model import Variable
from planner.solve.service_cuts import Cut

Floats = npt.NDArray[np.float64]
ROUNDING = 1e-6
NEAR_GAP = 2e-3  # of a neighbourhood: its bound does not hold for the whole


class LoadedProgram:
    """The program of one horizon problem, with the last values found as the next start."""

    def __init__(self, model: programs.HorizonModel, *, seed: int) -> None:
        self.model = model
        problem = model.problem
        self._shape = problem.periods, len(problem.base.options)
        loader = pulp.HiGHS(mip=False, msg=False, threads=1, random_seed=seed)
        loader.createAndConfigureSolver(model.program)
        loader.buildSolverModel(model.program)
        self._highs: highspy.Highs = model.program.solverModel
        for option in ("mip_feasibility_tolerance", "primal_feasibility_tolerance"):
            self._highs.setOptionValue(option, FEASIBILITY_TOLERANCE)
        keys = [(t, o) for t in range(self._shape[0]) for o in range(self._shape[1])]
        self._held = np.array([model.held[key].index for key in keys], dtype=np.int32)
        self._ready = np.array([model.ready[key].index for key in keys], dtype=np.int32)
        self._committed = np.array([r.index for r in model.committed.values()], dtype=np.int32)
        whole = [v.index for v in model.program.variables() if v.cat == pulp.LpInteger]
        self._whole = np.array(whole, dtype=np.int32)
        self._active: set[tuple[int, int]] = set()
        self.values: Floats = np.zeros(self._highs.getNumCol())

    @property
    def ready(self) -> Floats:
        """Replicas that serve, in the last solution: period x option."""
        return self.values[self._ready].reshape(self._shape)

    @property
    def held(self) -> Counts:
        """Whole replicas that run, in the last solution."""
        return tuple(tuple(int(n) for n in row) for row in np.rint(self.values[self._held]).reshape(self._shape))

    @property
    def units(self) -> Counts:
        """Whole units of the last solution's replicas, and units hired in addition to satisfy a limit on a share."""
        problem = self.model.problem
        needed = tuple(units_of(problem, row) for row in self.held)
        if not any(
            weight < 0 for t in range(self._shape[0]) for x in problem.limits_of(t) for weight in x.units.values()
        ):
            return needed  # free units cost nothing, so the program may have more of them than it needs
        hired = {
            key: 0 if key[1] in self.model.committed else round(self.values[m.index])
            for key, m in self.model.units.items()
        }
        return tuple(tuple(max(count, hired[t, f]) for f, count in enumerate(row)) for t, row in enumerate(needed))

    @property
    def committed(self) -> dict[int, int]:
        return {f: round(self.values[r.index]) for f, r in self.model.committed.items()}

    def add_service(self, *, period: int, position: int, cut: Cut, need: float) -> bool:
        """Add a `service` row, once per period and cut; return whether it is new."""
        if (period, position) in self._active:
            return False
        self._active.add((period, position))
        programs.add_service(self.model, period=period, cut=position, weights=cut.weights.tolist(), need=need)
        used = np.flatnonzero(cut.weights)
        columns = self._ready.reshape(self._shape)[period][used]
        self._highs.addRow(need, highspy.kHighsInf, len(used), columns, cut.weights[used])
        return True

    def relax(self, *, time_limit_s: float) -> Outcome:
        """The linear relaxation, from the last basis."""
        self._relax_columns()
        return self._run(time_limit_s, relative_gap=0.0, integer=False)

    def optimise(self, solver: Solver, *, limits: Limits, start: Floats | None) -> Outcome:
        """Solve for whole numbers, from a start if there is one; CBC starts without one."""
        if solver is Solver.CBC:
            outcome = run(self.model.program, solver=solver, limits=limits)
            self.values = np.array([v.varValue or 0.0 for v in self._variables()])
            return outcome
        self._restore_whole()
        if start is not None:
            self._start_from(start)
        return self._run(limits.time_limit_s, relative_gap=limits.relative_gap, integer=True)

    def complete(self, held: Counts, *, at_least: bool, time_limit_s: float) -> Outcome:
        """The cheapest solution with exactly, or at least, these counts."""
        low = np.array(held, dtype=float).ravel()
        return self._between(low, np.full(len(low), highspy.kHighsInf) if at_least else low, time_limit_s)

    @property
    def running_values(self) -> Floats:
        """Replicas that run, in the last solution, whole or not: period after period."""
        return self.values[self._held]

    def near_relaxed(self, relaxed: Floats, *, time_limit_s: float) -> Outcome:
        """The cheapest solution that keeps every count which the relaxation has whole.

        Most of those are zeros, so the search covers the options that the relaxation uses (relaxation enforced
        neighbourhood search: Berthold 2014).
        """
        whole = np.abs(relaxed - np.rint(relaxed)) < ROUNDING
        low = np.where(whole, np.rint(relaxed), np.floor(relaxed))
        return self._between(low, np.where(whole, low, low + 1), time_limit_s)

    def rounded_up(self, relaxed: Floats, *, time_limit_s: float) -> Outcome:
        """The cheapest solution with each count of the relaxation rounded up: never short, but often expensive."""
        high = np.ceil(relaxed - ROUNDING)
        return self._between(high, high, time_limit_s)

    def _between(self, low: Floats, high: Floats, time_limit_s: float) -> Outcome:
        """The best whole numbers with the running counts inside bounds, which are then removed again."""
        self._highs.changeColsBounds(len(low), self._held, low, high)
        self._restore_whole()
        outcome = self._run(time_limit_s, relative_gap=NEAR_GAP, integer=True)
        free = np.full(len(low), highspy.kHighsInf)
        self._highs.changeColsBounds(len(low), self._held, np.zeros(len(low)), free)
        return outcome

    def _variables(self) -> Sequence[Variable]:
        return sorted(self.model.program.variables(), key=lambda variable: int(variable.index))

    def _start_from(self, values: Floats) -> None:
        solution = highspy.HighsSolution()
        solution.col_value = values.tolist()
        self._highs.setSolution(solution)

    def _relax_columns(self) -> None:
        self._set_kind(highspy.HighsVarType.kContinuous)

    def _restore_whole(self) -> None:
        self._set_kind(highspy.HighsVarType.kInteger)

    def _set_kind(self, kind: highspy.HighsVarType) -> None:
        self._highs.changeColsIntegrality(len(self._whole), self._whole, np.full(len(self._whole), kind))

    def _run(self, time_limit_s: float, *, relative_gap: float, integer: bool) -> Outcome:
        highs = self._highs
        highs.setOptionValue("time_limit", max(0.1, time_limit_s))
        highs.setOptionValue("mip_rel_gap", relative_gap)
        highs.run()
        outcome = highs_outcome(highs, integer=integer)
        if outcome.status.has_mix:
            self.values = np.array(highs.getSolution().col_value)
        return outcome
