"""The fast method's programs as arrays for HiGHS, with the rows of docs/explanation/planner/formulation.md.

Columns: a share `x[g, b]` per class and bucket, scaled as in `planner.solve.ilp` so that no coefficient exceeds 1, then
the units `m[f]` of each offer.  Rows: `demand[b]`, `capacity[g]`, and for a class with several offers a row that keeps
their sum inside its range.  HiGHS runs without primal heuristics, because the initial mix is good and the heuristics
would take most of the time.

`FeasibilityTest` tests whether units per class carry the demand, and gives a violated row if they do not.  Units `n`
carry it exactly if `Σ_g π_g n_g >= Σ_b min_g π_g a_gb` for every price `π >= 0` of capacity: Farkas' lemma on `demand`
and `capacity` (Benders, Partitioning procedures for solving mixed-variables programming problems, 1962).  The duals of
the cost of more capacity are the most violated prices.  The right-hand side of a row is the sum above, computed from
the price, and so free of the program's rounding.

`min_max_load` solves P3: workloads share no option here, so each is a linear program over its few options in use.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import highspy
import numpy as np
import numpy.typing as npt

from fleet.solvers import FEASIBILITY_TOLERANCE, NO_HEURISTICS, Limits, SolverError
from planner.problem import MixProblem
from planner.solve.highs import linear_program, silent_highs
from planner.solve.single_workload.table import Classes, Floats, replicas_per_share

ENDED = {
    highspy.HighsModelStatus.kOptimal,
    highspy.HighsModelStatus.kInfeasible,
    highspy.HighsModelStatus.kTimeLimit,
    highspy.HighsModelStatus.kObjectiveBound,
}
SAFETY = 1e-9  # relative reduction of a right-hand side: a smaller violation is rounding

Shares = dict[tuple[int, int], float]  # (route, bucket) -> share of the bucket


class OutOfTimeError(SolverError):
    """The time limit expired during a test."""


@dataclass(frozen=True, slots=True)
class Found:
    """Units per offer if any are known, a proven bound, and whether the last run of HiGHS ended."""

    units: npt.NDArray[np.int64] | None
    bound_usd_per_h: float
    ended: bool


def cheapest(
    classes: Classes,
    ranges: tuple[Floats, Floats],
    *,
    start: npt.NDArray[np.int64] | None,
    limits: Limits,
) -> Found:
    lp, shares = _program(classes, ranges)
    lp.integrality_ = [highspy.HighsVarType.kContinuous] * shares + [highspy.HighsVarType.kInteger] * len(classes.stock)
    highs = _quiet(limits, **NO_HEURISTICS)
    highs.passModel(lp)
    if start is not None:
        columns = np.arange(shares, lp.num_col_, dtype=np.int32)
        highs.setSolution(len(columns), columns, start.astype(float))
    highs.run()
    status, info = highs.getModelStatus(), highs.getInfo()
    if status not in ENDED:
        raise SolverError(f"highs: stopped with {highs.modelStatusToString(status)!r}")
    if status == highspy.HighsModelStatus.kInfeasible:
        return Found(None, np.inf, ended=True)
    has_mix = info.primal_solution_status == int(highspy.SolutionStatus.kSolutionStatusFeasible)
    units = np.rint(np.array(highs.getSolution().col_value)[shares:]).astype(np.int64) if has_mix else None
    return Found(units, float(info.mip_dual_bound), ended=status != highspy.HighsModelStatus.kTimeLimit)


def capacity_prices(classes: Classes, *, limits: Limits) -> Floats | None:
    """The dual price of a unit of each class in the relaxation; None if the relaxation is infeasible."""
    lp, _ = _program(classes, (np.zeros(len(classes.units)), np.full(len(classes.units), np.inf)))
    highs = _quiet(limits)
    highs.passModel(lp)
    highs.run()
    if highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
        return None
    buckets = classes.units.shape[1]
    rows = np.array(highs.getSolution().row_dual)
    if len(rows) < buckets + len(classes.units):
        return classes.cheapest_usd_per_h
    duals = np.maximum(0.0, -rows[buckets : buckets + len(classes.units)])
    return np.asarray(np.minimum(duals, classes.unlimited_usd_per_h))


def _program(classes: Classes, ranges: tuple[Floats, Floats]) -> tuple[highspy.HighsLp, int]:
    least, most = ranges
    group, bucket = np.nonzero(np.isfinite(classes.units))
    units = classes.units[group, bucket]
    scale = np.maximum(1.0, units)
    shares, offers, (groups, buckets) = len(group), len(classes.stock), classes.units.shape
    several = np.flatnonzero(np.bincount(classes.offer_class, minlength=groups) > 1)
    range_row = np.full(groups, -1)
    range_row[several] = buckets + groups + np.arange(len(several))
    beside = np.flatnonzero(range_row[classes.offer_class] >= 0)  # offers of a class with several
    lower = least[classes.offer_class]
    lower[beside] = 0.0
    top = np.minimum(classes.stock, most[classes.offer_class])
    inf = highspy.kHighsInf
    lp = linear_program(
        [
            (np.arange(shares), bucket, 1.0 / scale),
            (np.arange(shares), buckets + group, units / scale),
            (shares + np.arange(offers), buckets + classes.offer_class, np.full(offers, -1.0)),
            (shares + beside, range_row[classes.offer_class[beside]], np.ones(len(beside))),
        ],
        cost=np.concatenate([np.zeros(shares), classes.price_usd_per_h]),
        upper=np.concatenate([np.full(shares, inf), np.where(np.isfinite(top), top, inf)]),
        row_lower=np.concatenate([np.ones(buckets), np.full(groups, -inf), least[several]]),
        row_upper=np.concatenate([np.ones(buckets), np.zeros(groups), most[several]]),
    )
    lp.col_lower_ = np.concatenate([np.zeros(shares), lower])
    return lp, shares


@dataclass(frozen=True, slots=True)
class Row:
    """`weights · n >= least` for all units `n` that carry the demand."""

    weights: Floats
    least: float


def row_at(units: Floats, prices: Floats) -> Row:
    """The row that a price of capacity proves."""
    served = np.isfinite(units)
    cost = np.where(served, prices[:, None] * np.where(served, units, 0.0), np.inf)
    return Row(prices, float(cost.min(axis=0).sum()) * (1 - SAFETY))


class FeasibilityTest:
    """The linear program of one presolved table: `a[g, b]` units of a class per bucket, infinite if it cannot.

    min Σ_g π_g s_g: `Σ_b a_gb x_gb - s_g <= n_g`, `Σ_g x_gb = 1`.  Only its right-hand side changes, so each solve
    starts from the last basis.
    """

    def __init__(self, units: Floats, prices_usd_per_h: Floats, *, limits: Limits) -> None:
        group, bucket = np.nonzero(np.isfinite(units))
        weight = units[group, bucket]
        scale = np.maximum(1.0, weight)
        every, (groups, buckets) = np.arange(len(group)), units.shape
        self._units = units
        self._highs = _quiet(limits, presolve="off")  # presolve costs more time than it saves
        self._highs.passModel(
            linear_program(
                [
                    (every, group, weight / scale),
                    (every, groups + bucket, 1.0 / scale),
                    (len(every) + np.arange(groups), np.arange(groups), np.full(groups, -1.0)),
                ],
                cost=np.concatenate([np.zeros(len(every)), prices_usd_per_h]),
                upper=np.full(len(every) + groups, highspy.kHighsInf),
                row_lower=np.concatenate([np.full(groups, -highspy.kHighsInf), np.ones(buckets)]),
                row_upper=np.concatenate([np.zeros(groups), np.ones(buckets)]),
            )
        )
        self._rows = np.arange(len(units), dtype=np.int32)
        self._below = np.full(len(units), -highspy.kHighsInf)

    def violated_row(self, counts: Floats) -> Row | None:
        """A row that these units violate, or None if they carry the demand."""
        self._highs.changeRowsBounds(len(counts), self._rows, self._below, counts)
        self._highs.run()
        status = self._highs.getModelStatus()
        if status == highspy.HighsModelStatus.kTimeLimit:
            raise OutOfTimeError("highs: no time left")
        if status != highspy.HighsModelStatus.kOptimal:
            raise SolverError(f"highs: stopped with {self._highs.modelStatusToString(status)!r}")
        duals = np.array(self._highs.getSolution().row_dual[: len(counts)])
        row = row_at(self._units, np.maximum(0.0, -duals))
        return row if row.weights @ counts < row.least else None


def is_plain(problem: MixProblem) -> bool:
    """Whether every route has one leg, no profile errs, and no two routes share an option."""
    if problem.erring_buckets or any(len(route.legs) != 1 for route in problem.routes):
        return False
    return len({route.legs[0].option for route in problem.routes}) == len(problem.routes)


def min_max_load(problem: MixProblem, *, replicas: Sequence[int], limits: Limits) -> Shares:
    """P3: shares with HiGHS' rounding.  SolverError if these replicas cannot serve a bucket."""
    shares: Shares = {}
    for w, load in enumerate(problem.loads):
        routes = [r for r, way in enumerate(problem.routes) if way.load == w and replicas[way.legs[0].option] > 0]
        if not any(rate > 0 for rate in load.rate_rps):
            continue
        needed, buckets = replicas_per_share(problem, w, routes)
        options = [problem.routes[r].legs[0].option for r in routes]
        carried = np.array([replicas[o] * problem.options[o].uptime for o in options], dtype=float)
        busy = needed / carried.reshape(-1, 1)
        if not np.isfinite(busy).any(axis=0).all():
            raise SolverError(f"the counts {tuple(replicas)} serve no routing of {load.name}")
        for (at, column), share in _balanced(busy, limits).items():
            shares[routes[at], int(buckets[column])] = share
    return shares


def _balanced(busy: Floats, limits: Limits) -> Shares:
    """`busy[o, b]`: the load of bucket `b` alone on each replica of `o`."""
    group, bucket = np.nonzero(np.isfinite(busy))
    weight = busy[group, bucket]
    scale = np.maximum(1.0, weight)
    count, (options, buckets) = len(group), busy.shape
    lp = linear_program(
        [
            (np.arange(count), bucket, 1.0 / scale),
            (np.arange(count), buckets + group, weight / scale),
            (np.full(options, count), buckets + np.arange(options), np.full(options, -1.0)),
        ],
        cost=np.append(np.zeros(count), 1.0),
        upper=np.full(count + 1, highspy.kHighsInf),
        row_lower=np.concatenate([np.ones(buckets), np.full(options, -highspy.kHighsInf)]),
        row_upper=np.concatenate([np.ones(buckets), np.zeros(options)]),
    )
    highs = _quiet(limits, presolve="off")  # presolve costs more time than it saves
    highs.passModel(lp)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise SolverError(f"highs: no routing, {highs.modelStatusToString(highs.getModelStatus())!r}")
    found = np.array(highs.getSolution().col_value)[:count] / scale
    return {
        (int(at), int(column)): float(share)
        for at, column, share in zip(group, bucket, found, strict=True)
        if share > 0
    }


def _quiet(limits: Limits, **options: float | str) -> highspy.Highs:
    return silent_highs(
        random_seed=limits.seed,
        time_limit=limits.time_limit_s,
        mip_rel_gap=limits.relative_gap,
        mip_feasibility_tolerance=FEASIBILITY_TOLERANCE,
        primal_feasibility_tolerance=FEASIBILITY_TOLERANCE,
        **options,
    )
