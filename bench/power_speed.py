"""How long a row of 14 days takes on one core: drawing its work, and running it, by policy.

Process time after compiling, one seed, 58 servers on the budget of 40.  The guard is in but where
`bare`.
"""

import time
from typing import Any

from bench.power_rows import DAYS, Case, Rows, budget_w, warmed, work_of
from power.policies import policy_named
from power.simulator import RowSpec, simulate

CASES = (("none", True), ("polca", True), ("polca", False), ("ladder", False))


def run() -> Rows:
    """A row per policy."""
    warmed()
    return [_row(policy, bare=bare) for policy, bare in CASES]


def _row(policy: str, *, bare: bool) -> dict[str, Any]:
    case = Case(servers=58, policy=policy, seed=0, bare=bare)
    spec = RowSpec(budget_w=budget_w(case.yardstick), together=case.together)
    started_s = time.process_time()
    work = work_of(case)
    drawn_s = time.process_time() - started_s
    started_s = time.process_time()
    outcome = simulate(spec, work, policy=policy_named(policy), bare=bare, seed=0)
    ran_s = time.process_time() - started_s
    return {
        "policy": f"{policy}, bare" if bare else policy,
        "days": DAYS,
        "servers": case.servers,
        "requests": len(work.arrival_s),
        "decisions": outcome.ticks,
        "draw_cpu_s": drawn_s,
        "run_cpu_s": ran_s,
    }
