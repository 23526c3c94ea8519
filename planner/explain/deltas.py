"""How much worse one answer is than another by the goal they were found for, and how that is said."""

from collections.abc import Sequence

from planner.problem import MixProblem
from planner.solve.solution import MixSolution

NOT_PROVEN = " (not proven: the time limit expired, a better one may exist)"
NEGLIGIBLE = 1e-6  # in any goal's unit: less is the solvers' rounding
NEGLIGIBLE_SHARE = 1e-5  # of a goal's value: solvers end at a share of it, and one solve leaves the next a little room


def worse_by(problem: MixProblem, answer: MixSolution, *, than: MixSolution) -> float | None:
    """In the goal's unit; negative where the answer is better.  None where one of them holds no mix."""
    if answer.objective_value is None or than.objective_value is None:
        return None
    return problem.objective.worsening(answer.objective_value, than=than.objective_value)


def negligible(amount: float, *, of: float) -> bool:
    """Whether an amount is but the solvers' rounding: in itself, or beside the value it belongs to."""
    return abs(amount) <= max(NEGLIGIBLE, NEGLIGIBLE_SHARE * abs(of))


def listed(words: Sequence[str], last: str) -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
