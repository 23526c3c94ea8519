"""How long a row of 14 days takes on one core: drawing its work, and running it, by policy.

Process time after compiling, one seed, 58 servers on the budget of 40; medians of three.  The guard is in but where
`bare`.
"""

import statistics
import time
from typing import Any

from bench.power_rows import DAYS, Case, Rows, budget_w, warmed, work_of
from power.policies import policy_named
from power.simulator import RowSpec, simulate

REPEATS = 3
CASES = (("none", True), ("polca", True), ("polca", False), ("ladder", False))


def run() -> Rows:
    """A row per policy."""
    warmed()
    return [_row(policy, bare=bare) for policy, bare in CASES]


def _row(policy: str, *, bare: bool) -> dict[str, Any]:
    case = Case(servers=58, policy=policy, seed=0, bare=bare)
    spec = RowSpec(budget_w=budget_w(case.yardstick))
    drawn, ran, ticks, requests = [], [], 0, 0
    for _ in range(REPEATS):
        started_s = time.process_time()
        work = work_of(case)
        drawn.append(time.process_time() - started_s)
        started_s = time.process_time()
        outcome = simulate(spec, work, policy=policy_named(policy), bare=bare, seed=0)
        ran.append(time.process_time() - started_s)
        ticks, requests = outcome.ticks, len(work.arrival_s)
    return {
        "policy": f"{policy}, bare" if bare else policy,
        "days": DAYS,
        "servers": case.servers,
        "requests": requests,
        "decisions": ticks,
        "draw_cpu_s": statistics.median(drawn),
        "run_cpu_s": statistics.median(ran),
        "worst_cpu_s": max(ran),
    }
