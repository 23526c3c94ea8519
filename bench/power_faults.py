"""Ours with faults: the planner killed at the worst minute, telemetry stale for 10 s there, 5 % of orders ignored.

Assumed as in `power_more_servers`, three days around each seed's peak; the worst minute is when the uncapped row
would draw the most.  `breaker_pct`: how near the breaker came to opening (its thermal replica, 100: it opens), by the
trip curve of the guard.
"""

from collections.abc import Iterator
from typing import Any

from bench.power_rows import DAYS, Case, Measured, Rows, by_seed, figures, measured, worst_minute_s
from power.simulator import IgnoredActuation, PlannerKilled, StaleTelemetry
from power.simulator.spec import Fault

SIZES = (58, 64)
DAYS_EACH = min(DAYS, 3.0)
FAULTS = ("none", "planner killed", "telemetry 10 s stale", "5 % of orders ignored", "all three")


def run() -> Rows:
    """A row per size and fault."""
    seeds = by_seed(_of_seed)
    return [_row([seed[at] for seed in seeds]) for at in range(len(seeds[0]))]


def _of_seed(seed: int) -> list[tuple[str, Measured]]:
    return list(_runs(seed))


def _runs(seed: int) -> Iterator[tuple[str, Measured]]:
    for servers in SIZES:
        plain = Case(servers=servers, policy="ladder", seed=seed, days=DAYS_EACH)
        at_s = worst_minute_s(plain)
        kinds: dict[str, tuple[Fault, ...]] = {
            "none": (),
            "planner killed": (PlannerKilled(from_s=at_s),),
            "telemetry 10 s stale": (StaleTelemetry(from_s=at_s, to_s=at_s + 10),),
            "5 % of orders ignored": (IgnoredActuation(share=0.05),),
        }
        kinds["all three"] = tuple(fault for some in kinds.values() for fault in some)
        for name, faults in kinds.items():
            case = Case(servers=servers, policy="ladder", seed=seed, days=DAYS_EACH, faults=faults)
            yield name, measured(case)


def _row(named: list[tuple[str, Measured]]) -> dict[str, Any]:
    runs = [run for _, run in named]
    servers = runs[0].case.servers
    return {
        "row": f"{servers} servers (+{100 * servers / 40 - 100:.0f} %)",
        "fault": named[0][0],
        **figures(runs),
        "breaker_pct": 100 * max(run.hottest for run in runs),
    }
