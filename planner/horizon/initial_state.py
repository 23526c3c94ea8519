"""Whether the initial replicas serve until the first hired ones are warm.

Until then `ready_from_start` (docs/explanation/planner/horizon.md, section 3) limits every count to the initial one, so
no plan serves a period that these counts do not.
"""

from dataclasses import dataclass, replace

from planner.horizon.feasibility import Serving
from planner.horizon.problem import HorizonProblem


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The first period that no hire can serve, and the loads that it fails."""

    period: int
    loads: tuple[int, ...]
    warm_from: int  # replicas hired at the begin of the first period serve from this one on


def shortfall(problem: HorizonProblem) -> Shortfall | None:
    """The demand that `initial` does not serve; None where it serves all, or where the periods repeat."""
    initial, warm_from = problem.initial, min(problem.warmup_periods, default=0)
    if initial is None:
        return None
    serving = Serving(problem.base)
    for period in range(min(warm_from, problem.periods)):
        if not serving(initial, rates_rps=problem.rates_rps[period]):
            return Shortfall(period, _failed(problem, initial, period), warm_from)
    return None


def _failed(problem: HorizonProblem, initial: tuple[int, ...], period: int) -> tuple[int, ...]:
    """The loads that are short even if the replicas serve no other load."""
    base, rates = problem.base, problem.rates_rps[period]
    serving = Serving(replace(base, loads=tuple(replace(load, min_replicas=0) for load in base.loads)))
    return tuple(
        w
        for w, load in enumerate(base.loads)
        if sum(initial[o] for o in base.options_of(w)) < load.min_replicas
        or not serving(
            initial, rates_rps=tuple(row if other == w else (0.0,) * len(row) for other, row in enumerate(rates))
        )
    )
