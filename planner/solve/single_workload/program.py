"""P1 of a presolved table as arrays for HiGHS, with the rows of docs/explanation/planner/formulation.md.

Columns: a share `x[g, b]` per class and bucket, scaled as in `planner.solve.ilp` so that no coefficient exceeds 1, then
the units `m[f]` of each offer.  Rows: `demand[b]`, `capacity[g]`, and for a class with several offers a row that keeps
their sum inside its range.  HiGHS runs without primal heuristics, because the initial mix is good and the heuristics
would take most of the time.
"""

from dataclasses import dataclass

import highspy
import numpy as np
import numpy.typing as npt

from fleet.solvers import FEASIBILITY_TOLERANCE, NO_HEURISTICS, Limits, SolverError
from planner.solve.single_workload.presolve import Classes
from planner.solve.single_workload.table import Floats

ENDED = {
    highspy.HighsModelStatus.kOptimal,
    highspy.HighsModelStatus.kInfeasible,
    highspy.HighsModelStatus.kTimeLimit,
    highspy.HighsModelStatus.kObjectiveBound,
}


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a HiGHS run: units per offer if it found any, a proven bound, and whether it ran to the end."""

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
    highs = quiet(limits)
    for option, value in NO_HEURISTICS.items():
        highs.setOptionValue(option, value)
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
    highs = quiet(limits)
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
    alone = range_row[classes.offer_class] < 0
    inf = highspy.kHighsInf
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = shares + offers, buckets + groups + len(several)
    lp.col_cost_ = np.concatenate([np.zeros(shares), classes.price_usd_per_h])
    lp.col_lower_ = np.concatenate([np.zeros(shares), np.where(alone, least[classes.offer_class], 0.0)])
    top = np.minimum(classes.stock, most[classes.offer_class])
    lp.col_upper_ = np.concatenate([np.full(shares, inf), np.where(np.isfinite(top), top, inf)])
    lp.row_lower_ = np.concatenate([np.ones(buckets), np.full(groups, -inf), least[several]])
    ceiling = np.where(np.isfinite(most[several]), most[several], inf)
    lp.row_upper_ = np.concatenate([np.ones(buckets), np.zeros(groups), ceiling])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    share_rows = np.stack([bucket, buckets + group], axis=1).ravel()
    share_values = np.stack([1.0 / scale, units / scale], axis=1).ravel()
    pairs = np.stack([buckets + classes.offer_class, range_row[classes.offer_class]], axis=1)
    weights = np.tile([-1.0, 1.0], (offers, 1))
    there = pairs >= 0
    lengths = np.concatenate([np.full(shares, 2), there.sum(axis=1)])
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    lp.a_matrix_.index_ = np.concatenate([share_rows, pairs[there]]).astype(np.int32)
    lp.a_matrix_.value_ = np.concatenate([share_values, weights[there]])
    return lp, shares


def quiet(limits: Limits) -> highspy.Highs:
    """HiGHS without output, on one thread, with the seed and tolerances of all runs."""
    highs = highspy.Highs()
    options = {
        "output_flag": False,
        "threads": 1,
        "random_seed": limits.seed,
        "time_limit": limits.time_limit_s,
        "mip_rel_gap": limits.relative_gap,
        "mip_feasibility_tolerance": FEASIBILITY_TOLERANCE,
        "primal_feasibility_tolerance": FEASIBILITY_TOLERANCE,
    }
    for option, value in options.items():
        highs.setOptionValue(option, value)
    return highs
