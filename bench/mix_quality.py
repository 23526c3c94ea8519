"""What the mix costs beside the published per-slice formulation at several slice factors, and beside a proven optimum.

The tables are those of `bench.mix_tables` as they are (2 to 18 options), all workloads, rates of 1 to 10,000
requests/s, and the published 2x2 example.  The per-slice formulation runs under `SLICE_LIMIT_S`; a time-out's best mix
still counts as its answer.  The continuous optimum is P1 by `planner.solve.ilp`, solved to gap 0 by HiGHS from PuLP.
"""

from typing import Any

from bench.melange import Answer, per_slice
from bench.mix_tables import Instance, example, instances
from bench.solve_time import FULL, SAME_USD_PER_H, table_of
from fleet.solvers import Limits, Solver, SolveStatus
from fleet.solvers import run as run_program
from planner.problem import MixProblem
from planner.solve import ilp
from planner.solve.dispatch import solve_mix
from planner.solve.solution import MixSolution

SLICE_FACTORS = (1, 2, 4, 8)
SLICE_LIMIT_S = 60.0 if FULL else 1.0
EVERY = 1 if FULL else 29  # coprime to the number of rates and workloads
LIMITS = Limits(time_limit_s=20.0)


def run() -> list[dict[str, Any]]:
    chosen = list(instances(expansions=("plain",)))[::EVERY]
    ours = [_solved(instance.problem) for instance in chosen]
    agreed = sum(map(_agrees, chosen, ours))
    published = Instance("example", "plain", "example", 30.0, example())
    answer = _solved(published.problem)
    rows = [_row("2x2 example", [published], [answer], int(_agrees(published, answer)), slices) for slices in (1, 8)]
    return [*rows, *(_row("all tables", chosen, ours, agreed, slices) for slices in SLICE_FACTORS)]


def _row(name: str, chosen: list[Instance], ours: list[MixSolution], agreed: int, slices: int) -> dict[str, Any]:
    theirs = [per_slice(table_of(one), slices=slices, time_limit_s=SLICE_LIMIT_S) for one in chosen]
    more = [_saving(mine, their) for mine, their in zip(ours, theirs, strict=True)]
    return {
        "tables": name,
        "slice_factor": slices,
        "n": len(chosen),
        "ours_usd_per_h": sum(mine.cost_usd_per_h or 0.0 for mine in ours),
        "per_slice_usd_per_h": sum(their.cost_usd_per_h or 0.0 for their in theirs),
        "cheaper": sum(saving > SAME_USD_PER_H for saving in more),
        "equal": sum(abs(saving) <= SAME_USD_PER_H for saving in more),
        "dearer": sum(saving < -SAME_USD_PER_H for saving in more),
        "most_saved_percent": 100 * max(more),
        "per_slice_time_outs": sum(their.timed_out for their in theirs),
        "proven": sum(mine.status is SolveStatus.OPTIMAL for mine in ours),
        "equal_to_continuous_optimum": agreed,
    }


def _solved(problem: MixProblem) -> MixSolution:
    return solve_mix(problem, solver=Solver.HIGHS, limits=LIMITS)


def _agrees(instance: Instance, mine: MixSolution) -> bool:
    model = ilp.cheapest(instance.problem, routes=range(len(instance.problem.routes)))
    outcome = run_program(model.program, solver=Solver.HIGHS, limits=LIMITS)
    assert outcome.status is SolveStatus.OPTIMAL
    optimum = instance.problem.cost_usd_per_h(model.counts_of_units())
    return mine.cost_usd_per_h is not None and abs(mine.cost_usd_per_h - optimum) <= SAME_USD_PER_H


def _saving(mine: MixSolution, their: Answer) -> float:
    """The share of the per-slice cost that is saved; all of it where it found no mix."""
    if their.cost_usd_per_h is None or mine.cost_usd_per_h is None:
        return 1.0
    return (their.cost_usd_per_h - mine.cost_usd_per_h) / their.cost_usd_per_h
