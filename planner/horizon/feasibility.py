"""Whether counts serve a problem's demand, answered from known cuts before any program runs."""

from collections.abc import Sequence

import numpy as np

from planner.problem import MixProblem
from planner.solve.service_cuts import ServiceCuts

SHORT = 1e-6  # replicas that rounding may leave missing


class Serving:
    """`serving(counts)`: whether some routing keeps every replica within its rate and utilisation.

    One object answers for many counts and many rates of one problem, and reuses the cuts of each.
    """

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
            if all(counts[leg.option] > 0 for leg in route.legs)
            for b in range(len(rates[route.load]))
            if route.serves(b)
        }
        return all((w, b) in reached for w, load in enumerate(rates) for b, rate in enumerate(load) if rate > 0)

    def _carries(self, counts: Sequence[int], rates: Sequence[Sequence[float]]) -> bool:
        ready, wanted = np.array(counts, dtype=float), self._cuts.rates(rates)
        if any(missing > SHORT for _, missing in self._cuts.most_violated_known(ready, wanted, most=1)):
            return False
        found = self._cuts.find(ready, wanted)
        return found is None or found[1] <= SHORT
