"""How much worse one answer is than another by the goal they were found for, and how that is said."""

from collections.abc import Sequence

from planner.problem import Goal, MixProblem
from planner.solve.solution import MixSolution

NEGLIGIBLE = 1e-6  # in any goal's unit: less is the solvers' rounding
NEGLIGIBLE_SHARE = 1e-5  # of a goal's value: solvers end at a share of it, and one solve leaves the next a little room

UNITS = {
    Goal.COST: "$/h",
    Goal.SWITCHING: "$/h",
    Goal.ENERGY: "W",
    Goal.CARBON: "g/h of CO2-equivalent",
    Goal.SERVED: "rps",
}


def worse_by(problem: MixProblem, answer: MixSolution, *, than: MixSolution) -> float | None:
    """In the goal's unit; negative where the answer is better.  None where one of them holds no mix."""
    if answer.goal_value is None or than.goal_value is None:
        return None
    more = answer.goal_value - than.goal_value
    return -more if problem.goal is Goal.SERVED else more


def in_unit(problem: MixProblem, amount: float) -> str:
    """`4.29 $/h`."""
    unit = UNITS[problem.goal]
    return f"{amount:,.2f} {unit}" if unit == "$/h" else f"{amount:,.4g} {unit}"


def saved_in_words(problem: MixProblem, amount: float) -> str:
    """What an improvement does."""
    verb = "serve another" if problem.goal is Goal.SERVED else "save"
    return f"{verb} {in_unit(problem, amount)}"


def nothing_saved_in_words(problem: MixProblem) -> str:
    """What a change does that improves nothing."""
    return "serve nothing more" if problem.goal is Goal.SERVED else "save nothing"


def negligible(amount: float, *, of: float) -> bool:
    """Whether an amount is but the solvers' rounding: in itself, or beside the value it belongs to."""
    return abs(amount) <= max(NEGLIGIBLE, NEGLIGIBLE_SHARE * abs(of))


def listed(words: Sequence[str], last: str) -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
