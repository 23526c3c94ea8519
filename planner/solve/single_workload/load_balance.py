"""P3 as arrays: the routing with the least load on the busiest replica, per workload.

The rows are `demand[w,b]` and `evenness[o,w]` of docs/explanation/planner/formulation.md.  Workloads share no option
here, so each is a linear program over its few options in use.
"""

from collections.abc import Sequence

import highspy
import numpy as np

from fleet.solvers import Limits, SolverError
from planner.problem import MixProblem
from planner.solve.single_workload.program import quiet
from planner.solve.single_workload.table import Floats, replicas_per_share

Shares = dict[tuple[int, int], float]  # (route, bucket) -> share of the bucket


def is_plain(problem: MixProblem) -> bool:
    """Whether every route has one leg, no profile errs, and no two routes share an option."""
    if problem.erring_buckets or any(len(route.legs) != 1 for route in problem.routes):
        return False
    return len({route.legs[0].option for route in problem.routes}) == len(problem.routes)


def min_max_load(problem: MixProblem, *, replicas: Sequence[int], limits: Limits) -> Shares:
    """Shares with HiGHS' rounding.  SolverError if these replicas cannot serve a bucket."""
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
        for (at, column), share in _solved(busy, limits).items():
            shares[routes[at], int(buckets[column])] = share
    return shares


def _solved(busy: Floats, limits: Limits) -> Shares:
    """`busy[o, b]`: the load of bucket `b` alone on each replica of `o`."""
    group, bucket = np.nonzero(np.isfinite(busy))
    weight = busy[group, bucket]
    scale = np.maximum(1.0, weight)
    count, (options, buckets) = len(group), busy.shape
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = count + 1, buckets + options
    lp.col_cost_ = np.append(np.zeros(count), 1.0)
    lp.col_lower_ = np.zeros(count + 1)
    lp.col_upper_ = np.full(count + 1, highspy.kHighsInf)
    lp.row_lower_ = np.concatenate([np.ones(buckets), np.full(options, -highspy.kHighsInf)])
    lp.row_upper_ = np.concatenate([np.ones(buckets), np.zeros(options)])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.append(np.arange(0, 2 * count + 1, 2), 2 * count + options).astype(np.int32)
    rows = np.stack([bucket, buckets + group], axis=1).ravel()
    values = np.stack([1.0 / scale, weight / scale], axis=1).ravel()
    lp.a_matrix_.index_ = np.concatenate([rows, buckets + np.arange(options)]).astype(np.int32)
    lp.a_matrix_.value_ = np.concatenate([values, np.full(options, -1.0)])
    highs = quiet(limits)
    highs.setOptionValue("presolve", "off")  # costs more time than it saves
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
