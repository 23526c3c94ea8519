"""Hysteresis: a new plan must be worth the move.

The same request must get the same answer, and noise must not flip replicas.  The running replicas therefore stay the
plan while they satisfy the whole request and cost at most a given share above the proven bound of any mix.
"""

from planner.problem import MixProblem
from planner.solve.fixed_counts import ROUNDING, at_counts
from planner.solve.solution import MixSolution


def keep_running(problem: MixProblem, solution: MixSolution, *, within: float) -> MixSolution:
    """The running replicas as a solution where they may stay, else the given solution."""
    held = tuple(option.held for option in problem.options)
    if not problem.objective.serves_all or solution.objective_value is None:
        return solution
    if not any(held) or held == solution.replicas:
        return solution
    running = at_counts(problem, solution, held)
    if running is None or running.objective_value is None:
        return solution
    worth_it = running.objective_value > solution.bound * (1 + within) + ROUNDING
    return solution if worth_it else running
