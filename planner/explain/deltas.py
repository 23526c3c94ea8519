"""Differences between two solutions, in the unit of their objective."""

from collections.abc import Sequence

from planner.problem import MixProblem
from planner.solve.solution import MixSolution

NOT_PROVEN = " (not proven: the time limit expired, a better one may exist)"
NEGLIGIBLE = 1e-6  # in any objective's unit: smaller differences are the solvers' rounding
NEGLIGIBLE_SHARE = 1e-5  # of an objective's value: the relative tolerance at which solvers end


def worse_by(problem: MixProblem, answer: MixSolution, *, than: MixSolution) -> float | None:
    """In the objective's unit; negative if the first is better.  None if one of them has no mix."""
    if answer.objective_value is None or than.objective_value is None:
        return None
    return problem.objective.worsening(answer.objective_value, than=than.objective_value)


def negligible(amount: float, *, of: float) -> bool:
    """Whether a difference is within the solvers' rounding of the value that it belongs to."""
    return abs(amount) <= max(NEGLIGIBLE, NEGLIGIBLE_SHARE * abs(of))


def listed(items: Sequence[str], last: str) -> str:
    """`a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"
