"""Detectors on simulated jobs of 1,024 and 16,384 ranks with known faults (docs/explanation/faults/simulator.md).

`run`: 16,384 ranks.  Agents probe all peers in turn over eight source ports.  `eight` and `public` have eight seeds of
an hour, which tuning never used, and C4's rule on the windows of the first; other scenarios have one seed of half an
hour.  A diagnosis with a confidence below 0.5 is not reported by a live monitor and does not count.

`weeks`: false quarantines per week, three weeks of 1,024 ranks and one week of 16,384, in jobs of six hours, each with
its own seed.

Both continue where they stopped (`bench.harness.continued`).  Costs are CPU seconds of this process.
"""

import time
from collections.abc import Iterable, Sequence
from functools import partial

from bench.c4_baseline import c4_detectors
from bench.harness import ROOT, Row, continued
from faults.simulator import SCENARIOS
from faults.simulator.detectors import DetectorFactory, product_detectors
from faults.simulator.result import poisson_upper, wilson
from faults.simulator.run import job, jobs
from faults.simulator.score import Outcome

LARGE = 16_384
SEEDS = {"eight": range(9_831, 9_839), "public": range(9_841, 9_849)}
SHORT = ("congestion", "leaf", "early", "mixed", "lost-agents", "skew")
SHORT_SEED, SHORT_H = 9_851, 0.5
DETECTORS = {"ours": product_detectors, "C4's rule": c4_detectors}
WEEKS = {1_024: 3, LARGE: 1}
WEEK_H = 168.0
WEEKS_SCENARIO, WEEKS_SEED = "weeks", 6_000


def run() -> list[Row]:
    runs = [(name, "ours", seed, 1.0) for name, seeds in SEEDS.items() for seed in seeds]
    runs += [(name, "ours", SHORT_SEED, SHORT_H) for name in SHORT]
    runs += [(name, "C4's rule", seeds[0], 1.0) for name, seeds in SEEDS.items()]
    parts = {
        f"{name}, {detector}, seed {seed}": partial(
            _simulated, name, hours=hours, seed=seed, detector_factory=DETECTORS[detector]
        )
        for name, detector, seed, hours in runs
    }
    lines = continued("faults_scale", parts, sources=[ROOT / "faults", ROOT / "bench" / "c4_baseline.py"])
    rows = [_sum(part, [line]) for part, line in lines.items()]
    of_name = {name: [line for part, line in lines.items() if part.startswith(f"{name}, ours")] for name in SEEDS}
    return [*rows, *(_sum(f"{name}, ours, {len(found)} seeds", found) for name, found in of_name.items() if found)]


def weeks() -> list[Row]:
    rows = []
    for ranks, count in WEEKS.items():
        of_week = round(count * WEEK_H * 3600.0 / SCENARIOS[WEEKS_SCENARIO].job_s)
        parts = {f"{ranks} ranks, job {at}": partial(_week_job, ranks, at) for at in range(of_week)}
        if lines := continued("faults_weeks", parts, sources=[ROOT / "faults"]):
            rows.append(_sum(f"{WEEKS_SCENARIO}, {ranks} ranks", list(lines.values())))
    return rows


def _simulated(name: str, *, hours: float, seed: int, detector_factory: DetectorFactory) -> Row:
    begun_s = time.process_time()
    found = jobs(
        SCENARIOS[name],
        ranks=LARGE,
        hours=hours,
        seed=seed,
        detector_factory=detector_factory,
        clock_s=time.process_time,
    )
    return _counts(found, begun_s)


def _week_job(ranks: int, at: int) -> Row:
    begun_s, scenario = time.process_time(), SCENARIOS[WEEKS_SCENARIO]
    seed = (WEEKS_SEED, at)
    found = job(
        scenario,
        ranks=ranks,
        until_s=scenario.job_s,
        seed=seed,
        detector_factory=product_detectors,
        clock_s=time.process_time,
    )
    return _counts([found], begun_s)


def _counts(outcomes: Iterable[Outcome], begun_s: float) -> Row:
    total = Outcome()
    for outcome in outcomes:
        total.add(outcome)
    tally = total.tally
    return {
        "hours": total.hours,
        "windows": len(total.spent_s),
        "faults": sum(tally.eligible.values()),
        "hidden": sum(tally.hidden.values()),
        "named": sum(tally.named.values()),
        "right": tally.right,
        "wrong": tally.wrong,
        "false_isolations": tally.false_isolations,
        "carried_out": tally.carried_out,
        "decision_s": sum(total.spent_s),
        "run_s": time.process_time() - begun_s,
    }


def _sum(name: str, lines: Sequence[Row]) -> Row:
    sums = {key: sum(line[key] for line in lines) for key in lines[0] if key not in {"code", "part"}}
    decision_s, run_s, interval = sums.pop("decision_s"), sums.pop("run_s"), wilson(sums["named"], sums["faults"])
    weeks, diagnoses = sums["hours"] / WEEK_H, sums["right"] + sums["wrong"]
    return {
        "scenario": name,
        **sums,
        "recall": sums["named"] / sums["faults"] if sums["faults"] else None,
        "recall_low": interval and interval[0],
        "recall_high": interval and interval[1],
        "precision": sums["right"] / diagnoses if diagnoses else None,
        "false_isolations_per_week_upper_95": poisson_upper(sums["false_isolations"]) / weeks,
        "carried_out_per_week_upper_95": poisson_upper(sums["carried_out"]) / weeks,
        "decision_ms": 1000.0 * decision_s / sums["windows"],
        "core_ms_per_window": 1000.0 * run_s / sums["windows"],
        "core_s_per_simulated_h": run_s / sums["hours"],
    }
