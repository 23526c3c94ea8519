"""Running a PuLP program: HiGHS in this process, or CBC as a second solver, both silent, single-threaded and seeded.

HiGHS returns its proven bound.  CBC, driven through files, does not: where it stops early, the bound is that of the
linear relaxation, which is weaker but also proven.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import highspy
import pulp

from fleet.errors import FleetwrightError

# For programs with a good initial solution: HiGHS' own heuristics would take most of the time to find no better one.
NO_HEURISTICS = {
    "mip_heuristic_effort": 0.0,
    "mip_heuristic_run_feasibility_jump": False,
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
    "mip_heuristic_run_zi_round": False,
    "mip_heuristic_run_shifting": False,
    "mip_allow_restart": False,
    "mip_detect_symmetry": False,
}
FEASIBILITY_TOLERANCE = 1e-7  # in replicas and shares; with less, HiGHS 1.15 sometimes loops past its time limit

MIN_RUN_S = 1e-3  # the time of a run when none is left: it stops at its first check


class SolverError(FleetwrightError):
    """A solver failed for a reason that is independent of the request."""


class Solver(StrEnum):
    """The program that proves the bound."""

    HIGHS = "highs"
    CBC = "cbc"


class SolveStatus(StrEnum):
    """The result for the request when the solver stops."""

    OPTIMAL = "optimal"  # nothing cheaper exists, up to the requested gap
    FEASIBLE = "feasible"  # the time limit ended the search: a mix that holds, and its distance from the optimum
    INFEASIBLE = "infeasible"  # no mix holds
    TIME_LIMIT = "time_limit"  # the time limit ended the search before any mix was found

    @property
    def has_mix(self) -> bool:
        return self in {SolveStatus.OPTIMAL, SolveStatus.FEASIBLE}


@dataclass(frozen=True, slots=True)
class Limits:
    """When a solver stops.  The same seed gives the same result unless the time limit ends the run.

    The clock measures the time left over several runs.  The planner reads no other clock unless it gets one.  Each run
    of HiGHS or CBC reads the machine's clock itself.
    """

    time_limit_s: float
    relative_gap: float = 0.0
    seed: int = 0
    clock_s: Callable[[], float] = time.perf_counter


@dataclass(frozen=True, slots=True)
class Deadline:
    """One time limit over several solver runs."""

    limits: Limits
    ends_s: float

    @classmethod
    def of(cls, limits: Limits) -> "Deadline":
        return cls(limits, limits.clock_s() + limits.time_limit_s)

    @property
    def left_s(self) -> float:
        return max(0.0, self.ends_s - self.limits.clock_s())

    @property
    def has_struck(self) -> bool:
        return self.left_s <= 0

    def rest(self, share: float = 1.0) -> Limits:
        """The limits of one more run, with a share of the time left."""
        return replace(self.limits, time_limit_s=max(MIN_RUN_S, share * self.left_s))

    def part(self, share: float) -> "Deadline":
        """An earlier deadline, after a share of the time left."""
        return replace(self, ends_s=self.ends_s - (1 - share) * self.left_s)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run.  The bound is in the program's own sense and proven for every status."""

    status: SolveStatus
    bound: float


def run(program: Any, *, solver: Solver, limits: Limits) -> Outcome:
    """Solve; afterwards the program's variables have the best values found."""
    try:
        return _run_highs(program, limits) if solver is Solver.HIGHS else _run_cbc(program, limits)
    except pulp.PulpSolverError as error:
        raise SolverError(f"{solver}: {error}") from error


def _run_highs(program: Any, limits: Limits) -> Outcome:
    program.solve(
        pulp.HiGHS(
            msg=False,
            threads=1,
            timeLimit=limits.time_limit_s,
            gapRel=limits.relative_gap,
            random_seed=limits.seed,
            mip_feasibility_tolerance=FEASIBILITY_TOLERANCE,
            primal_feasibility_tolerance=FEASIBILITY_TOLERANCE,
        )
    )
    return highs_outcome(program.solverModel, integer=bool(program.isMIP()), sense=program.sense)


def highs_outcome(highs: Any, *, integer: bool, sense: int = 1) -> Outcome:
    """The outcome of a run of HiGHS on a program that the caller loaded."""
    info, status, kinds = highs.getInfo(), highs.getModelStatus(), highspy.HighsModelStatus
    if status in {kinds.kInfeasible, kinds.kUnboundedOrInfeasible}:
        return Outcome(SolveStatus.INFEASIBLE, float("inf"))
    if status not in {kinds.kOptimal, kinds.kTimeLimit}:
        raise SolverError(f"highs: stopped with {highs.modelStatusToString(status)!r}")
    if integer:
        bound = info.mip_dual_bound
    else:
        bound = info.objective_function_value if status == kinds.kOptimal else -float("inf")
    if status == kinds.kOptimal:
        return Outcome(SolveStatus.OPTIMAL, float(sense * bound))
    found = info.primal_solution_status == int(highspy.SolutionStatus.kSolutionStatusFeasible)
    return Outcome(SolveStatus.FEASIBLE if found else SolveStatus.TIME_LIMIT, float(sense * bound))


def _run_cbc(program: Any, limits: Limits) -> Outcome:
    started_s = limits.clock_s()
    program.solve(_cbc(limits, mip=True))
    if program.sol_status == pulp.LpSolutionOptimal:
        objective = pulp.value(program.objective) or 0.0  # None: the objective is empty
        return Outcome(SolveStatus.OPTIMAL, objective - program.sense * limits.relative_gap * abs(objective))
    if program.status == pulp.LpStatusInfeasible:  # CBC's "Integer infeasible" too, which sol_status does not have
        if limits.clock_s() - started_s >= limits.time_limit_s:  # CBC reports the same when it stops during presolve
            return Outcome(SolveStatus.TIME_LIMIT, -program.sense * float("inf"))
        return Outcome(SolveStatus.INFEASIBLE, float("inf"))
    found = program.sol_status == pulp.LpSolutionIntegerFeasible
    return Outcome(SolveStatus.FEASIBLE if found else SolveStatus.TIME_LIMIT, _relaxed_bound(program, limits))


def _relaxed_bound(program: Any, limits: Limits) -> float:
    """The linear relaxation's objective; the program keeps its values."""
    values = {variable: variable.varValue for variable in program.variables()}
    program.solve(_cbc(limits, mip=False))
    solved = program.sol_status == pulp.LpSolutionOptimal
    bound = pulp.value(program.objective) if solved else -program.sense * float("inf")
    for variable, value in values.items():
        variable.varValue = value
    return float(bound)


def _cbc(limits: Limits, *, mip: bool) -> Any:
    # No thread count: CBC is single-threaded without one, while `threads 1` starts a worker that may never wake.
    tolerances = [f"primalTolerance {FEASIBILITY_TOLERANCE}", f"integerTolerance {FEASIBILITY_TOLERANCE}"]
    return pulp.COIN_CMD(
        path=pulp.PULP_CBC_CMD.pulp_cbc_path,  # the bundled binary, by the interface that PuLP 4 keeps
        msg=False,
        mip=mip,
        timeLimit=limits.time_limit_s,
        gapRel=limits.relative_gap,
        options=[f"randomSeed {limits.seed + 1}", f"randomCbcSeed {limits.seed + 1}", *tolerances],
    )
