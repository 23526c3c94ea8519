"""Keeping what runs: a new plan must be worth the move.

The same request asked again must get the same answer, and a little noise must not flip replicas.  So where the replicas
that run now hold everything the request asks for, and cost at most so much more than the proven bound on any mix, they
are the plan.
"""

from planner.problem import MixProblem
from planner.solve.fixed_counts import ROUNDING, at_counts
from planner.solve.solution import MixSolution


def keep_running(problem: MixProblem, solution: MixSolution, *, within: float) -> MixSolution:
    """The running replicas as a solution where they may stay, else the solution as it is."""
    held = tuple(option.held for option in problem.options)
    if not problem.objective.serves_all or not any(held) or held == solution.replicas or solution.objective_value is None:
        return solution
    running = at_counts(problem, solution, held)
    if running is None or running.objective_value is None:
        return solution
    worth_it = running.objective_value > solution.bound * (1 + within) + ROUNDING
    return solution if worth_it else running
