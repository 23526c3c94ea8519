"""Detectors on simulated jobs of 1,024 to 16,384 ranks with known faults, beside C4's rule on the same windows.

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
HOURS = {1_024: 1.0, 4_096: 0.4, 16_384: 0.25}  # about ten minutes of a core for all rows together
LONGER = {"straggler": 2.0, "imbalance": 1.0}  # of the compute plane alone, after minutes without a fault
OTHERS = {  # that C4's rule is asked too: it knows nothing of programs that stand still or compute longer
    "healthy", "mixed", "congestion", "leaf", "eight", "early", "lost-agents", "skew", "blind", "ring-only", "experts",
    "mild",
}  # fmt: skip
SIZE_OF_KINDS = 1_024


def run() -> list[dict[str, Any]]:
    """Every scenario in every size, C4's rule on the same windows, and every kind of noise."""
    names = [name for name in SCENARIOS if name != "weeks"]
    rows = [
        _row(name, ranks, max(hours, LONGER.get(name, 0.0)), who)
        for ranks, hours in HOURS.items()
        for name in names
        for who in ("ours", "c4 rule")
        if who == "ours" or name in OTHERS
    ]
    return rows + [_row("mixed", SIZE_OF_KINDS, 1.0, "ours", noise=noise) for noise in KINDS if noise != "lab"]


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
    slow, crash = found.ttd_s.get("comm-slow"), found.ttd_s.get("crash")
    hang = found.ttd_s.get("noncomm-hang")
    return {
        "scenario": name,
        "detector": who,
        "noise": noise,
        "ranks": ranks,
        "hours": found.hours,
        "faults": found.faults,
        "recall": found.recall,
        "recall_low": found.recall_interval and found.recall_interval[0],
        "hidden": found.hidden_faults,
        "recall_visible": found.recall_visible,
        "recall_slow": found.recall_slow,
        "recall_slow_low": found.recall_slow_interval and found.recall_slow_interval[0],
        "precision": found.precision,
        "false_isolations": found.false_isolations,
        "slow_ttd_p50_s": slow and slow.p50,
        "slow_ttd_p95_s": slow and slow.p95,
        "hang_ttd_p95_s": hang and hang.p95,
        "crash_ttd_p50_s": crash and crash.p50,
        "crash_ttd_p95_s": crash and crash.p95,
        "decision_ms": 1000.0 * found.compute_s_per_window,
        "decision_max_ms": 1000.0 * found.compute_s_per_window_max,
        "core_s_per_simulated_h": found.run_s / found.hours,
    }
