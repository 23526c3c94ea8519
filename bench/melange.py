"""Two baselines for the planner's P1 on one workload: the published formulation, and the plain MILP.

`per_slice` is Mélange's (arXiv 2404.14527, section 5): the rate of each bucket is cut into `S` equal slices, a binary
assigns a slice to a GPU type, an integer counts each type; PuLP with the bundled CBC, as its authors run it, plus a
time limit.  Slices of buckets without demand are omitted, and types that cannot serve a bucket have no binary for it:
both only help.  Stock, which the paper does not have, is a bound on the count.

`plain_milp` splits buckets continuously (P1 of the formulation) and gives arrays to HiGHS with its default settings,
relative gap 0, one thread: no presolve, no initial solution, no bound of this project.
"""

import time
from dataclasses import dataclass

import highspy
import numpy as np
import pulp

from planner.solve.single_workload import Table


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a yardstick.  Without a cost it found no mix in time."""

    cost_usd_per_h: float | None
    seconds: float
    timed_out: bool


def per_slice(table: Table, *, slices: int, time_limit_s: float) -> Result:
    started_s = time.perf_counter()
    program = pulp.LpProblem("melange", pulp.LpMinimize)
    counts = [
        program.add_variable(f"count_{o}", 0, None if np.isinf(stock) else int(stock), pulp.LpInteger)
        for o, stock in enumerate(table.stock)
    ]
    load: list[list[tuple[object, float]]] = [[] for _ in counts]
    for b in range(len(table.buckets)):
        able = np.flatnonzero(np.isfinite(table.units[:, b]))
        for s in range(slices):
            taken = [program.add_variable(f"slice_{b}_{s}_{o}", 0, 1, pulp.LpInteger) for o in able]
            program += pulp.lpSum(taken) == 1, f"served_{b}_{s}"
            for o, binary in zip(able, taken, strict=True):
                load[o].append((binary, float(table.units[o, b]) / slices))
    for position, terms in enumerate(load):
        program += pulp.LpAffineExpression(terms) <= counts[position], f"load_{position}"
    program.setObjective(pulp.lpSum(p * n for p, n in zip(table.price_usd_per_h.tolist(), counts, strict=True)))
    program.solve(pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, msg=False, timeLimit=time_limit_s))
    seconds = time.perf_counter() - started_s
    if program.sol_status not in {pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible}:
        return Result(None, seconds, timed_out=program.status != pulp.LpStatusInfeasible)
    units = np.array([round(n.varValue or 0.0) for n in counts])
    return Result(table.cost_usd_per_h(units), seconds, timed_out=program.sol_status != pulp.LpSolutionOptimal)


def plain_milp(table: Table, *, time_limit_s: float) -> Result:
    started_s = time.perf_counter()
    highs = highspy.Highs()
    options = {"output_flag": False, "threads": 1, "time_limit": time_limit_s, "mip_rel_gap": 0.0}
    for option, value in options.items():
        highs.setOptionValue(option, value)
    highs.passModel(_arrays(table))
    highs.run()
    seconds = time.perf_counter() - started_s
    found = highs.getInfo().primal_solution_status == int(highspy.SolutionStatus.kSolutionStatusFeasible)
    timed_out = highs.getModelStatus() == highspy.HighsModelStatus.kTimeLimit
    if not found:
        return Result(None, seconds, timed_out=timed_out)
    units = np.rint(np.array(highs.getSolution().col_value)[-len(table.stock) :])
    return Result(table.cost_usd_per_h(units.astype(np.int64)), seconds, timed_out=timed_out)


def _arrays(table: Table) -> highspy.HighsLp:
    option, bucket = np.nonzero(np.isfinite(table.units))
    shares, (options, buckets) = len(option), table.units.shape
    inf = highspy.kHighsInf
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = shares + options, buckets + options
    lp.col_cost_ = np.concatenate([np.zeros(shares), table.price_usd_per_h])
    lp.col_lower_ = np.zeros(shares + options)
    lp.col_upper_ = np.concatenate([np.full(shares, inf), np.where(np.isinf(table.stock), inf, table.stock)])
    lp.row_lower_ = np.concatenate([np.ones(buckets), np.full(options, -inf)])
    lp.row_upper_ = np.concatenate([np.ones(buckets), np.zeros(options)])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    starts = np.concatenate([np.arange(0, 2 * shares, 2), 2 * shares + np.arange(options + 1)])
    lp.a_matrix_.start_ = starts.astype(np.int32)
    rows = np.stack([bucket, buckets + option], axis=1).ravel()
    values = np.stack([np.ones(shares), table.units[option, bucket]], axis=1).ravel()
    lp.a_matrix_.index_ = np.concatenate([rows, buckets + np.arange(options)]).astype(np.int32)
    lp.a_matrix_.value_ = np.concatenate([values, np.full(options, -1.0)])
    kinds = highspy.HighsVarType
    lp.integrality_ = [kinds.kContinuous] * shares + [kinds.kInteger] * options
    return lp
