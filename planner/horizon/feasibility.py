"""Whether counts serve a problem's demand, decided from known cuts before any program runs.

`shortfall` checks the initial replicas: until the first hired ones are warm, `ready_from_start`
(docs/explanation/planner/horizon.md, section 3) limits every count to the initial one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.horizon.problem import HorizonProblem
from planner.problem import MixProblem
from planner.solve.service_cuts import ServiceCuts

SHORT = 1e-6  # replicas that rounding may leave missing


class Serving:
    """`serving(counts)`: whether some routing keeps every replica within its rate and utilisation."""

    def __init__(self, problem: MixProblem) -> None:
        self._problem = problem
        self._cuts = ServiceCuts(problem)

    def __call__(self, counts: Sequence[int], *, rates_rps: Sequence[Sequence[float]] | None = None) -> bool:
        """With the problem's own rates, or with others: `rates_rps[load][bucket]`."""
        rates = tuple(load.rate_rps for load in self._problem.loads) if rates_rps is None else rates_rps
        return self._reaches(counts, rates) and self._carries(counts, rates)

    def _reaches(self, counts: Sequence[int], rates: Sequence[Sequence[float]]) -> bool:
        problem = self._problem
        for w, load in enumerate(problem.loads):
            if sum(counts[o] for o in problem.options_of(w)) < load.min_replicas:
                return False
        reached = {
            (route.load, b)
            for route in problem.routes
            if route.runs(counts)
            for b in range(len(rates[route.load]))
            if route.serves(b)
        }
        return all((w, b) in reached for w, load in enumerate(rates) for b, rate in enumerate(load) if rate > 0)

    def _carries(self, counts: Sequence[int], rates: Sequence[Sequence[float]]) -> bool:
        ready, wanted = np.array(counts, dtype=float), self._cuts.rates(rates)
        if any(missing > SHORT for _, missing in self._cuts.max_violated_known(ready, wanted, max_cuts=1)):
            return False
        found = self._cuts.find(ready, wanted)
        return found is None or found[1] <= SHORT


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
