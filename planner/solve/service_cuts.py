"""Benders cuts on counts that serve a demand, without shares.  All periods and failures have them in common.

Replicas `n` serve the rates `λ` exactly if `Σ_o π_o·h_o·n_o >= Σ_b λ_b·min_r Σ_{o∈r} π_o·A_rob` for every price
`π >= 0` of a replica's time: Farkas' lemma on demand and capacity (Benders, Partitioning procedures for solving
mixed-variables programming problems, 1962).  `A` is the time of a replica per request/s.  The left-hand side does not
depend on the period and the right-hand side is linear in its rates, so a price found in one period is a cut in all.

A small linear program finds the most violated price.  Only its objective changes, so each solve starts from the last
basis: about a millisecond for 14 options and 60 buckets.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import highspy
import numpy as np
import numpy.typing as npt

from fleet.solvers import FEASIBILITY_TOLERANCE, SolverError
from planner.problem import MixProblem
from planner.solve.highs import silent_highs

MIN_PRICE = 1e-9  # smaller prices are the solver's rounding
SAFETY = 1e-9  # relative reduction of a right-hand side, so that rounding cuts off no feasible counts

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BucketRoutes:
    """Every (bucket, route) pair, sorted by bucket: the replicas of each option per request/s."""

    cells: tuple[tuple[int, int], ...]  # (load, bucket) of each cell that a route serves
    first: npt.NDArray[np.int64]  # per cell, its first row
    time: Floats  # row x option

    @classmethod
    def of(cls, problem: MixProblem) -> "BucketRoutes":
        cells: list[tuple[int, int]] = []
        first: list[int] = []
        rows: list[Floats] = []
        for w, load in enumerate(problem.loads):
            for b in range(len(load.rate_rps)):
                bucket_routes = [route for route in problem.routes if route.load == w and route.serves(b)]
                if bucket_routes:
                    cells.append((w, b))
                    first.append(len(rows))
                for route in bucket_routes:
                    row = np.zeros(len(problem.options))
                    for leg in route.legs:
                        row[leg.option] += 1 / (leg.max_rps[b] * load.utilisation)
                    rows.append(row)
        time = np.array(rows).reshape(len(rows), len(problem.options))
        return cls(tuple(cells), np.array(first, dtype=np.int64), time)

    def cheapest(self, prices: Floats) -> Floats:
        """Per cell, the cost of one request/s on its cheapest route."""
        return np.minimum.reduceat(self.time @ prices, self.first) if self.cells else np.zeros(0)


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """`Σ_o weights[o] · ready[o] >= rate · per_rps` in every period."""

    weights: Floats  # per option, the largest is 1
    per_rps: Floats  # per cell


@dataclass
class ServiceCuts:
    """All cuts so far, and the program that finds more."""

    problem: MixProblem
    pool: list[Cut] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bucket_routes = BucketRoutes.of(self.problem)
        self._uptime = np.array([option.uptime for option in self.problem.options])
        self._scale = self._cell_scale()
        self._program = self._pricing()

    def rates(self, period: Sequence[Sequence[float]]) -> Floats:
        """A period's rates in the order of the cells."""
        return np.array([period[w][b] for w, b in self.bucket_routes.cells])

    def need(self, cut: Cut, rates: Floats) -> float:
        return float(cut.per_rps @ rates) * (1 - SAFETY)

    def max_violated_known(self, ready: Floats, rates: Floats, *, max_cuts: int) -> list[tuple[int, float]]:
        """The known cuts that these counts violate most, with the violation in replicas."""
        if not self.pool:
            return []
        have = np.array([cut.weights for cut in self.pool]) @ ready
        missing = np.array([cut.per_rps for cut in self.pool]) @ rates * (1 - SAFETY) - have
        return [(int(k), float(missing[k])) for k in np.argsort(-missing)[:max_cuts]]

    def find(self, ready: Floats, rates: Floats) -> tuple[int, float] | None:
        """A new cut that these counts violate, with the violation; None if they serve the rates."""
        if not self.bucket_routes.cells:
            return None
        costs = np.concatenate([-self._uptime * ready, rates * self._scale])
        columns = len(costs)
        self._program.changeColsCost(columns, np.arange(columns, dtype=np.int32), costs)
        self._program.run()
        if self._program.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            raise SolverError("highs: the pricing of service cuts did not end")
        prices = np.array(self._program.getSolution().col_value[: len(ready)])
        prices[prices < MIN_PRICE] = 0.0
        weights = prices * self._uptime
        if not weights.max(initial=0.0):
            return None
        cut = Cut(weights / weights.max(), self.bucket_routes.cheapest(prices / weights.max()))
        missing = self.need(cut, rates) - float(cut.weights @ ready)
        if missing <= 0:
            return None
        self.pool.append(cut)
        return len(self.pool) - 1, missing

    def _cell_scale(self) -> Floats:
        """Per cell, the time on its fastest route: the unit of the cell's price."""
        if not self.bucket_routes.cells:
            return np.zeros(0)
        return np.minimum.reduceat(self.bucket_routes.time.sum(axis=1), self.bucket_routes.first)

    def _pricing(self) -> highspy.Highs:
        """max Σ λ_b·μ_b - Σ h_o·n_o·π_o over Σ π = 1 and μ_b <= the price of each route of the bucket."""
        bucket_routes, options = self.bucket_routes, len(self.problem.options)
        program = silent_highs(primal_feasibility_tolerance=FEASIBILITY_TOLERANCE)
        columns = options + len(bucket_routes.cells)
        upper = np.concatenate([np.ones(options), np.full(len(bucket_routes.cells), highspy.kHighsInf)])
        program.addVars(columns, np.zeros(columns), upper)
        program.addRow(1.0, 1.0, options, np.arange(options, dtype=np.int32), np.ones(options))
        ends = [*bucket_routes.first[1:], len(bucket_routes.time)][: len(bucket_routes.first)]
        for cell, (start, end) in enumerate(zip(bucket_routes.first, ends, strict=True)):
            for time in bucket_routes.time[start:end] / self._scale[cell]:
                used = np.flatnonzero(time)
                indices = np.array([options + cell, *used], dtype=np.int32)
                program.addRow(-highspy.kHighsInf, 0.0, len(indices), indices, np.array([1.0, *-time[used]]))
        program.changeObjectiveSense(highspy.ObjSense.kMaximize)
        return program
