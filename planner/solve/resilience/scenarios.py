"""The replicas left by each failure, and the service cuts that they violate.

Replicas serve a demand exactly if they meet every service cut (`planner.solve.service_cuts`), so they survive a failure
exactly if the replicas left do.  A cut found for one failure is valid for all, and without any failure.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from planner.problem import MIN_BUSY_REPLICAS, Leg, Loss, MixProblem, Route
from planner.solve.service_cuts import Cut, ServiceCuts

Floats = npt.NDArray[np.float64]
NOTHING_LOST = -1  # the scenario without a failure
CUTS_PER_ROUND = 3  # known cuts added per scenario and round


@dataclass(frozen=True, slots=True)
class ViolatedCut:
    scenario: int
    position: int
    missing: float  # replicas


class Scenarios:
    """The failures of a problem over some of its routes, and the cuts found."""

    def __init__(self, problem: MixProblem, *, routes: Collection[int], losses: Mapping[int, Loss]) -> None:
        self.problem = replace(problem, routes=tuple(_weighted(problem, problem.routes[r]) for r in routes))
        self.losses = dict(losses)
        self.cuts = ServiceCuts(self.problem)
        self.rates = self.cuts.rates([load.rate_rps for load in problem.loads])

    @property
    def is_servable(self) -> bool:
        return set(self.problem.buckets()) <= set(self.cuts.bucket_routes.cells)

    def left(self, replicas: Sequence[float] | Floats) -> dict[int, Floats]:
        """Per scenario, the counts left; the one without a failure comes first."""
        counts = np.asarray(replicas, dtype=float)
        return {NOTHING_LOST: counts} | {k: _without(counts, loss) for k, loss in self.losses.items()}

    def weights(self, cut: Cut) -> tuple[Floats, float]:
        """A cut with no weight above its right-hand side: one such replica meets it alone."""
        need = self.cuts.need(cut, self.rates)
        return np.minimum(cut.weights, need), need

    def broken(self, left: Mapping[int, Floats], *, tolerance: float) -> Iterator[ViolatedCut]:
        """Known cuts that the counts left violate; if there are none, a new one if one exists."""
        tested: set[bytes] = set()
        for k, counts in left.items():
            known = list(self.broken_known(k, counts, tolerance=tolerance))
            yield from known
            if known or counts.tobytes() in tested:
                continue
            tested.add(counts.tobytes())
            found = self._unreached(counts) or self.cuts.find(counts, self.rates)
            if found is not None and found[1] > tolerance:
                yield ViolatedCut(k, *found)

    def broken_known(self, scenario: int, counts: Floats, *, tolerance: float) -> Iterator[ViolatedCut]:
        """The known cuts that the counts left by a failure violate most."""
        for position, missing in self.cuts.max_violated_known(counts, self.rates, max_cuts=CUTS_PER_ROUND):
            if missing > tolerance:
                yield ViolatedCut(scenario, position, missing)

    def add_price(self, weights: Floats) -> int | None:
        """The cut of given prices of a replica's time; None if it is empty."""
        if not weights.max(initial=0.0) > 0 or not self.cuts.bucket_routes.cells:
            return None
        uptime = np.array([option.uptime for option in self.problem.options])
        valuation = weights * uptime
        self.cuts.pool.append(
            Cut(valuation / valuation.max(), self.cuts.bucket_routes.cheapest(weights / valuation.max()))
        )
        return len(self.cuts.pool) - 1

    def _unreached(self, counts: Floats) -> tuple[int, float] | None:
        """A bucket without a replica needs one of the options that serve it."""
        if not np.all(np.abs(counts - np.rint(counts)) < 1e-6):
            return None
        takes = self.cuts.bucket_routes.time > 0
        if not len(takes):
            return None
        closed = (takes & (counts < 0.5)).any(axis=1)
        unreached = np.flatnonzero(np.minimum.reduceat(closed.astype(np.int8), self.cuts.bucket_routes.first))
        if not len(unreached):
            return None
        cell = int(unreached[0])
        end = [*self.cuts.bucket_routes.first[1:], len(takes)][cell]
        wanted = takes[self.cuts.bucket_routes.first[cell] : end].any(axis=0) & (counts < 0.5)
        per_rps = np.zeros(len(self.rates))
        per_rps[cell] = 1 / self.rates[cell]
        self.cuts.pool.append(Cut(wanted.astype(float), per_rps))
        return len(self.cuts.pool) - 1, 1.0


def _without(counts: Floats, loss: Loss) -> Floats:
    left = counts.copy()
    for o, lost in loss.lost.items():
        left[o] = 0.0 if lost is None else max(0.0, left[o] - lost)
    return left


def _weighted(problem: MixProblem, route: Route) -> Route:
    """The route with exactly the loads of `replicas_per_share`, for buckets with demand only."""
    rates = problem.loads[route.load].rate_rps
    legs = (
        Leg(
            leg.option,
            tuple(min(most, rate / MIN_BUSY_REPLICAS) for most, rate in zip(leg.max_rps, rates, strict=True)),
        )
        for leg in route.legs
    )
    return replace(route, legs=tuple(legs))
