"""Detectors on simulated jobs of 16,384 ranks with known faults, beside C4's rule on the same windows.

Judge seeds are from 1,000 up; whoever tunes a detector uses those below.  Each scenario is simulated in jobs of its own
length; a row adds them up.  Costs are CPU seconds of this process.
"""

import time
from dataclasses import replace
from typing import Any

from faults.simulator import SCENARIOS
from faults.simulator.answer import Score, score
from faults.simulator.judges import Panel, ours, plain
from faults.simulator.noise import KINDS
from faults.simulator.outcome import Outcome
from faults.simulator.run import WINDOW_S, jobs

JUDGE_SEED = 1_000
RANKS = 16_384
SMALLER = 1_024
AT_SCALE = {"healthy": 0.25, "mixed": 0.5, "eight": 0.5, "congestion": 0.25, "leaf": 0.5, "early": 0.25}
SMALL = {
    "mixed": 4.0,
    "eight": 2.0,
    "congestion": 2.0,
    "leaf": 3.0,
    "early": 1.0,
    "hangs": 2.0,
    "lost-agents": 2.0,
    "skew": 1.0,
    "blind": 2.0,
    "ring-only": 1.0,
    "experts": 1.0,
    "mild": 1.0,
    "straggler": 4.0,
    "imbalance": 1.0,
}


def run() -> list[dict[str, Any]]:
    """Large jobs, small ones in every scenario, C4's rule, and every kind of noise."""
    rows = [_row(name, RANKS, hours, "ours") for name, hours in AT_SCALE.items()]
    rows += [_row(name, RANKS, hours / 5, "c4 rule") for name, hours in AT_SCALE.items() if name != "early"]
    rows += [_row(name, SMALLER, hours, "ours") for name, hours in SMALL.items()]
    rows += [_row("mixed", SMALLER, 1.0, "ours", noise=noise) for noise in KINDS if noise != "lab"]
    return rows


def judged(
    name: str, *, ranks: int, hours: float, seed: int, panel: Panel, noise: str = "lab", clock: Any = time.process_time
) -> Score:
    """One scenario before a panel."""
    scenario = replace(SCENARIOS[name], noise=KINDS[noise])
    begun_s, total = clock(), Outcome()
    for outcome in jobs(scenario, ranks=ranks, hours=hours, seed=seed, panel=panel, clock_s=clock):
        total.add(outcome)
    return score(total, scenario=name, ranks=ranks, seed=seed, window_s=WINDOW_S, run_s=clock() - begun_s)


def _row(name: str, ranks: int, hours: float, who: str, *, noise: str = "lab") -> dict[str, Any]:
    panel = ours if who == "ours" else plain
    found = judged(name, ranks=ranks, hours=hours, seed=JUDGE_SEED, panel=panel, noise=noise)
    slow, hang = found.ttd_s.get("comm-slow"), found.ttd_s.get("noncomm-hang")
    return {
        "scenario": name,
        "detector": who,
        "noise": noise,
        "ranks": ranks,
        "hours": found.hours,
        "faults": found.faults,
        "recall": found.recall,
        "recall_low": found.recall_interval and found.recall_interval[0],
        "recall_slow": found.recall_slow,
        "precision": found.precision,
        "false_isolations": found.false_isolations,
        "slow_ttd_p50_s": slow and slow.p50,
        "slow_ttd_p95_s": slow and slow.p95,
        "hang_ttd_p95_s": hang and hang.p95,
        "decision_ms": 1000.0 * found.compute_s_per_window,
        "decision_max_ms": 1000.0 * found.compute_s_per_window_max,
        "core_s_per_simulated_h": found.run_s / found.hours,
    }
