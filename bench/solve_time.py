"""How long P1 and P3 take on one workload with 70 options x 60 buckets, beside both yardsticks of `bench.melange`.

Measured is `planner.solve.dispatch.solve_mix`: plain numbers in, counts, routing and proof out.  Each instance of
`bench.mix_tables` is solved `REPEATS` times and counts with its median, as the machine may be shared; one that takes
longer than `LONG_S` is solved once.  The yardsticks run once, on some of the instances, under `YARDSTICK_LIMIT_S`, and
a time-out counts with that limit, which understates the speed-up.  `FLEETWRIGHT_BENCH_FULL=1` takes every instance,
for the yardsticks too (hours).
"""

import statistics
import time
from dataclasses import dataclass
from math import exp, fsum, log

import numpy as np

from bench.harness import FULL, Row
from bench.melange import Result, per_slice, plain_milp
from bench.mix_tables import instances
from fleet.solvers import Limits, Solver, SolveStatus
from planner.problem import MixProblem
from planner.solve.dispatch import solve_mix
from planner.solve.single_workload import tables_of
from planner.solve.solution import MixSolution

EXPANSIONS = {"prices": 2, "offers": 4, "kinds": 4}  # every so-manieth instance: with each step all rates occur
COMPARED = 16  # and of these, every so-manieth
REPEATS, LONG_S = 3, 0.2
YARDSTICK_LIMIT_S = 60.0 if FULL else 5.0
SLICES = 8  # the paper's
LIMITS = Limits(time_limit_s=20.0)
SAME_USD_PER_H = 1e-6


@dataclass(frozen=True, slots=True)
class Timed:
    solution: MixSolution
    seconds: float
    slices: Result | None
    plain: Result | None


def run() -> list[Row]:
    return [_row(expansion) for expansion in EXPANSIONS]


def _row(expansion: str) -> Row:
    every, compared = (1, 1) if FULL else (EXPANSIONS[expansion], COMPARED)
    chosen = list(instances(expansion))[::every]
    timed = [_timed(problem, yardsticks=at % compared == 0) for at, problem in enumerate(chosen)]
    milliseconds = np.array([1000 * one.seconds for one in timed])
    slices = [(one, one.slices) for one in timed if one.slices is not None]
    plain = [(one, one.plain) for one in timed if one.plain is not None]
    return {
        "70 options x 60 buckets": expansion,
        "n": len(timed),
        "median_ms": float(np.median(milliseconds)),
        "p95_ms": float(np.quantile(milliseconds, 0.95)),
        "p99_ms": float(np.quantile(milliseconds, 0.99)),
        "worst_ms": float(milliseconds.max()),
        "time_outs": sum(one.solution.status is not SolveStatus.OPTIMAL for one in timed),
        "compared": len(slices),
        "per_slice_time_outs": sum(result.timed_out for _, result in slices),
        "speed_up_over_per_slice": _geometric_mean([result.seconds / one.seconds for one, result in slices]),
        "speed_up_over_plain_milp": _geometric_mean([result.seconds / one.seconds for one, result in plain]),
        "cheaper_than_per_slice": sum(_difference(one, result) < -SAME_USD_PER_H for one, result in slices),
        "dearer_than_either": sum(_difference(one, result) > SAME_USD_PER_H for one, result in [*slices, *plain]),
    }


def _timed(problem: MixProblem, *, yardsticks: bool) -> Timed:
    seconds, solution = [], None
    for _ in range(REPEATS):
        started_s = time.perf_counter()
        solution = solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)
        seconds.append(time.perf_counter() - started_s)
        if seconds[0] > LONG_S:
            break
    assert solution is not None
    if not yardsticks:
        return Timed(solution, statistics.median(seconds), None, None)
    tables = tables_of(problem, routes=range(len(problem.routes)))
    assert tables is not None
    table = tables[0]
    slices = per_slice(table, slices=SLICES, time_limit_s=YARDSTICK_LIMIT_S)
    return Timed(solution, statistics.median(seconds), slices, plain_milp(table, time_limit_s=YARDSTICK_LIMIT_S))


def _difference(one: Timed, result: Result) -> float:
    """What our mix costs more; nothing where the yardstick found none."""
    if result.cost_usd_per_h is None or one.solution.cost_usd_per_h is None:
        return -float("inf")
    return one.solution.cost_usd_per_h - result.cost_usd_per_h


def _geometric_mean(ratios: list[float]) -> float:
    return exp(fsum(map(log, ratios)) / len(ratios))
