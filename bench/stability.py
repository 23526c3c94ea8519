"""100 windows of a steady load with 5 % of noise: how often the allocation changes, what it costs, what it misses.

Rows compare re-solving every window for the last observed rate, as AIBrix's optimizer does, with
`planner.stability`.  Both plan at 85 % utilisation.  `windows_over_plan` counts windows whose load exceeded that
utilisation on the replicas that ran, `windows_under_served` those whose load exceeded the replicas' highest rate.
Decisions take effect in the next window.  The cost is over that of the optimum for each window's rate, known
beforehand.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from bench.demand_tables import on_demand_mix
from bench.harness import Row
from fleet.solvers import Limits, Solver
from planner.horizon.feasibility import Serving
from planner.problem import MixProblem
from planner.solve.dispatch import solve_mix
from planner.stability import Counts, Rates, StabilityPolicy, StabilityState, decide

WINDOWS = 100
NOISE = 0.05
BASES_RPS = (3.0, 30.0, 300.0)
SEEDS = (0, 1, 2)
RESOLVED = "re-solve each window"
MARGINS = (0.05, 0.1)
UTILISATION = 0.85
LIMITS = Limits(time_limit_s=5.0, relative_gap=1e-3)

Planner = Callable[[Rates], Counts]


def run() -> list[Row]:
    return [row for base_rps in BASES_RPS for row in _rows(base_rps)]


def _rows(base_rps: float) -> list[Row]:
    results: dict[str, list[tuple[int, int, int, float]]] = {}
    for seed in SEEDS:
        problem = on_demand_mix(rate_rps=base_rps, utilisation=UTILISATION, seed=seed)
        windows = noisy(problem, seed=seed)
        best = [_resolved(problem, rates) for rates in windows]
        clairvoyant_usd = sum(problem.cost_usd_per_h(counts) for counts in best)
        runs = {RESOLVED: best}
        runs |= {f"stability, margin {margin:.0%}": _steady(problem, windows, margin=margin) for margin in MARGINS}
        for policy, counts in runs.items():
            results.setdefault(policy, []).append(_evaluated(problem, windows, counts, clairvoyant_usd))
    return [_summary(base_rps, policy, runs) for policy, runs in results.items()]


def noisy(problem: MixProblem, *, seed: int) -> list[Rates]:
    generator = np.random.default_rng(1000 + seed)
    rates = np.array(problem.loads[0].rate_rps)
    draws = np.maximum(0.0, generator.normal(1, NOISE, WINDOWS))
    buckets = np.maximum(0.0, generator.normal(1, NOISE, (WINDOWS, len(rates))))
    return [(tuple((rates * draw * bucket).tolist()),) for draw, bucket in zip(draws, buckets, strict=True)]


def _resolved(problem: MixProblem, rates: Rates) -> Counts:
    loads = (replace(problem.loads[0], rate_rps=rates[0]),)
    return solve_mix(replace(problem, loads=loads), solver=Solver.HIGHS, limits=LIMITS).replicas


def _steady(problem: MixProblem, windows: list[Rates], *, margin: float) -> list[Counts]:
    state, serving, counts = StabilityState((0,) * len(problem.options)), Serving(problem), []
    for rates in windows:
        decision = decide(
            problem,
            state=state,
            observed_rps=rates,
            policy=StabilityPolicy(margin=margin),
            solver=Solver.HIGHS,
            limits=LIMITS,
            serving=serving,
        )
        state = decision.state
        counts.append(decision.running)
    return counts


def _evaluated(
    problem: MixProblem, windows: list[Rates], counts: list[Counts], clairvoyant_usd: float
) -> tuple[int, int, int, float]:
    planned = Serving(problem)
    full = Serving(replace(problem, loads=tuple(replace(load, utilisation=1.0) for load in problem.loads)))
    later = list(zip(windows[1:], counts, strict=False))  # what was decided in one window runs in the next
    return (
        sum(now != then for then, now in pairwise(counts)),
        sum(not planned(running, rates_rps=rates) for rates, running in later),
        sum(not full(running, rates_rps=rates) for rates, running in later),
        sum(problem.cost_usd_per_h(row) for row in counts) / clairvoyant_usd - 1,
    )


def _summary(base_rps: float, policy: str, runs: list[tuple[int, int, int, float]]) -> Row:
    changes, over, under, dearer = zip(*runs, strict=True)
    return {
        "policy": policy,
        "base_rps": base_rps,
        "runs": len(runs),
        "windows": WINDOWS,
        "changes_median": float(np.median(changes)),
        "changes_worst": max(changes),
        "windows_over_plan_mean": float(np.mean(over)),
        "windows_under_served_mean": float(np.mean(under)),
        "cost_over_clairvoyant_percent": 100 * float(np.mean(dearer)),
    }
