"""Detectors on simulated jobs of 1,024 to 16,384 ranks with known faults, beside C4's rule on the same windows.

Evaluation seeds start at 1,000; tuning uses seeds below.  Each scenario is simulated in jobs of its own length; a row
adds them up.  The scenarios that are hard for the joint fit run again without probes, on the same windows.  Costs are
CPU seconds of this process.

    python -m bench.faults_scale [--hours H] [--seed S] [--without] RANKS SCENARIO ...

runs a part for longer, or with another seed.
"""

import argparse
import time
from dataclasses import replace
from typing import Any

from bench.__main__ import show
from faults.simulator import SCENARIOS
from faults.simulator.answer import Score, score
from faults.simulator.detectors import Panel, ours, plain
from faults.simulator.noise import KINDS
from faults.simulator.outcome import Outcome
from faults.simulator.run import WINDOW_S, jobs

JUDGE_SEED = 4_000
HOURS = {1_024: 1.0, 4_096: 0.4, 16_384: 0.25}  # about a quarter of an hour of a core for all rows together
LONGER = {"straggler": 2.0, "imbalance": 1.0}  # of the compute plane alone, after minutes without a fault
OTHERS = {  # that C4's rule is asked too: it knows nothing of programs that stand still or compute longer
    "healthy", "mixed", "congestion", "leaf", "eight", "early", "lost-agents", "skew", "blind", "ring-only", "experts",
    "mild",
}  # fmt: skip
HARD = ("eight", "mixed", "congestion", "leaf", "early", "skew", "lost-agents")  # with probes and without
LARGE = (4_096, 16_384)
LEFT_OUT = {
    "weeks",
    "weeks-no-probes",
    "no-probes",
}  # the first two are bench/false_isolation_rate.py's; the third is HARD's
SIZE_OF_KINDS = 1_024


def run() -> list[dict[str, Any]]:
    names = [name for name in SCENARIOS if name not in LEFT_OUT]
    rows = [
        _row(name, ranks, max(hours, LONGER.get(name, 0.0)), who)
        for ranks, hours in HOURS.items()
        for name in names
        for who in ("ours", "c4 rule")
        if who == "ours" or name in OTHERS
    ]
    rows += [_row(name, ranks, HOURS[ranks], "ours", probes=False) for ranks in LARGE for name in HARD]
    return rows + [_row("mixed", SIZE_OF_KINDS, 1.0, "ours", noise=noise) for noise in KINDS if noise != "lab"]


def judged(
    name: str,
    *,
    ranks: int,
    hours: float,
    seed: int,
    panel: Panel,
    noise: str = "lab",
    probes: bool = True,
    clock: Any = time.process_time,
) -> Score:
    scenario = SCENARIOS[name]
    scenario = replace(scenario, noise=KINDS[noise], probes=probes and scenario.probes)
    begun_s, total = clock(), Outcome()
    for outcome in jobs(scenario, ranks=ranks, hours=hours, seed=seed, panel=panel, clock_s=clock):
        total.add(outcome)
    return score(total, scenario=name, ranks=ranks, seed=seed, window_s=WINDOW_S, run_s=clock() - begun_s)


def _row(
    name: str,
    ranks: int,
    hours: float,
    who: str,
    *,
    noise: str = "lab",
    probes: bool = True,
    seed: int = JUDGE_SEED,
) -> dict[str, Any]:
    panel = ours if who == "ours" else plain
    found = judged(name, ranks=ranks, hours=hours, seed=seed, panel=panel, noise=noise, probes=probes)
    slow, crash = found.ttd_s.get("comm-slow"), found.ttd_s.get("crash")
    hang = found.ttd_s.get("noncomm-hang")
    return {
        "scenario": name,
        "detector": who,
        "noise": noise,
        "probes": "yes" if probes and who == "ours" else "no",
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
        "carried_out": found.carried_out,
        "slow_ttd_p50_s": slow and slow.p50,
        "slow_ttd_p95_s": slow and slow.p95,
        "hang_ttd_p95_s": hang and hang.p95,
        "crash_ttd_p50_s": crash and crash.p50,
        "crash_ttd_p95_s": crash and crash.p95,
        "decision_ms": 1000.0 * found.compute_s_per_window,
        "decision_max_ms": 1000.0 * found.compute_s_per_window_max,
        "core_s_per_simulated_h": found.run_s / found.hours,
        "named_by_kind": _by_kind(found),
    }


def _by_kind(found: Score) -> str:
    kinds = sorted(found.by_kind.items())
    return ", ".join(f"{name} {round(kind.recall * kind.faults)}/{kind.faults}" for name, kind in kinds) or "-"


def main() -> None:
    parser = argparse.ArgumentParser(description="Detectors on simulated jobs with known faults.")
    parser.add_argument("ranks", type=int)
    parser.add_argument("scenarios", nargs="+", choices=list(SCENARIOS), metavar="SCENARIO")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=JUDGE_SEED)
    parser.add_argument("--without", action="store_true", help="without probes")
    options = parser.parse_args()
    for name in options.scenarios:
        row = _row(name, options.ranks, options.hours, "ours", probes=not options.without, seed=options.seed)
        show(f"seed {options.seed}", [row])


if __name__ == "__main__":
    main()
