"""Shadow prices of P1's LP relaxation: the gain of relaxing a row if counts may be fractional.

In the relaxation a whole step never gains more than its shadow price, because the optimum is convex in the right-hand
side.  With whole counts it may gain more or less.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulp

from fleet.solvers import Deadline, Limits, Solver, run
from planner.problem import MixProblem
from planner.solve import resilience
from planner.solve.ilp.model import MixModel
from planner.solve.ilp.programs import cheapest


@dataclass(frozen=True, slots=True)
class Relaxation:
    per_row: Mapping[str, float]  # shadow price, in the objective's unit per unit of the row's right-hand side
    units: Mapping[int, float]


def relaxation(problem: MixProblem, *, limits: Limits) -> Relaxation | None:
    """None if the relaxation has no optimum, or none within the limits."""
    model = _relaxed(problem, limits)
    for variable in model.program.variables():
        variable.cat = pulp.LpContinuous
    if not run(model.program, solver=Solver.HIGHS, limits=limits).status.has_mix:
        return None
    rows = {row.name: max(0.0, -(row.pi or 0.0)) for row in model.program.constraints()}
    return Relaxation(rows, {f: m.varValue or 0.0 for f, m in model.units.items()})


def _relaxed(problem: MixProblem, limits: Limits) -> MixModel:
    if not problem.losses:
        return cheapest(problem, routes=range(len(problem.routes)))
    return resilience.relaxed(problem, deadline=Deadline.of(limits))
