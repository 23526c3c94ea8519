"""False isolations per cluster-week: three weeks of 1,024 ranks and one of 16,384, as a cluster lives.

A week is made of jobs of six hours with seeds of their own.  Each finished job is a line of
bench/out/faults_weeks.jsonl, with a digest of the code that it judged: a run that was broken off goes on where it
stopped, and lines of other code do not count.  `run` goes on for at most `LIMIT_S` per size and reports what there is;

    python -m bench.faults_weeks [--into FILE] [--limit-s S] [RANKS ...]

has no limit unless told.  One process, one core; a second one may do the other size into a file of its own.
"""

import argparse
import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from faults.simulator import SCENARIOS
from faults.simulator.judges import ours
from faults.simulator.rates import poisson_upper, wilson
from faults.simulator.run import job

ROOT = Path(__file__).parent.parent
KEPT = Path(__file__).parent / "out" / "faults_weeks.jsonl"
WEEKS = {1_024: 3, 16_384: 1}
WEEK_H = 168.0
SEED = 2_000
LIMIT_S = 120.0
JUDGED = ("fabric.py", "verdict.py", "simulator", "localisation", "stragglers", "hangs/waiting.py")
# What says the same counts in other words.
TOLD = frozenset({"answer.py", "rates.py", "plain.py", "__init__.py"})


def run() -> list[dict[str, Any]]:
    """A row per size."""
    for ranks in WEEKS:
        _go_on(ranks, KEPT, limit_s=LIMIT_S)
    return [row for ranks in WEEKS if (row := _row(ranks, KEPT))]


def code() -> str:
    """A digest of everything that the counts depend on."""
    digest = hashlib.sha256()
    for name in JUDGED:
        place = ROOT / "faults" / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            if not (name == "simulator" and path.name in TOLD):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


CODE = code()  # when this process began: what it has loaded does not change any more


def _go_on(ranks: int, kept: Path, *, limit_s: float) -> None:
    """Simulate what is missing, at least one job of it, for about so long."""
    scenario = SCENARIOS["weeks"]
    done = {line["job"] for line in _lines(ranks, kept)}
    begun_s = time.monotonic()
    for at in range(round(WEEKS[ranks] * WEEK_H * 3600.0 / scenario.job_s)):
        if at in done:
            continue
        found = job(
            scenario,
            ranks=ranks,
            until_s=scenario.job_s,
            seed=(SEED, at),
            panel=ours,
            clock_s=time.process_time,
        )
        tally = found.tally
        line = {
            "code": CODE,
            "ranks": ranks,
            "job": at,
            "hours": found.hours,
            "false_isolations": tally.false_isolations,
            "right": tally.right,
            "wrong": tally.wrong,
            "hidden": sum(tally.hidden.values()),
            "asked": sum(tally.asked.values()),
            "named": sum(tally.named.values()),
            "decision_s": sum(found.spent_s),
            "windows": len(found.spent_s),
            "wrongs": [[at_s, verdict.model_dump(mode="json")] for at_s, verdict in found.wrongs[:20]],
        }
        kept.parent.mkdir(parents=True, exist_ok=True)
        with kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if time.monotonic() - begun_s > limit_s:
            return


def _lines(ranks: int, kept: Path) -> Iterator[dict[str, Any]]:
    for text in kept.read_text(encoding="utf-8").splitlines() if kept.exists() else ():
        line = json.loads(text)
        if line["code"] == CODE and line["ranks"] == ranks:
            yield line


def _row(ranks: int, kept: Path) -> dict[str, Any] | None:
    lines = list(_lines(ranks, kept))
    if not lines:
        return None
    sums = {name: sum(line[name] for line in lines) for name in lines[0] if isinstance(lines[0][name], int | float)}
    weeks = sums["hours"] / WEEK_H
    interval = wilson(sums["named"], sums["asked"])
    return {
        "ranks": ranks,
        "weeks": weeks,
        "windows": sums["windows"],
        "false_isolations": sums["false_isolations"],
        "false_isolations_per_week": sums["false_isolations"] / weeks,
        "per_week_upper_95": poisson_upper(sums["false_isolations"]) / weeks,
        "faults": sums["asked"],
        "hidden": sums["hidden"],
        "named": sums["named"],
        "recall_low": interval and interval[0],
        "wrong_verdicts": sums["wrong"],
        "decision_ms": 1000.0 * sums["decision_s"] / sums["windows"],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="False isolations per cluster-week.")
    parser.add_argument("ranks", nargs="*", type=int, choices=list(WEEKS), default=list(WEEKS))
    parser.add_argument("--into", type=Path, default=KEPT)
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    told = parser.parse_args()
    for size in told.ranks:
        _go_on(size, told.into, limit_s=told.limit_s)
        print(_row(size, told.into), flush=True)
