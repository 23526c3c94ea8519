"""False quarantines per cluster-week: three weeks of 1,024 ranks and one week of 16,384.

A week consists of jobs of six hours, each with its own seed.  Each finished job is a line of
bench/out/faults_weeks.jsonl with a digest of the code under test: an interrupted run continues where it stopped, and
lines of other code do not count.  `run` continues for at most `LIMIT_S` per size and reports the jobs done so far.

    python -m bench.false_isolation_rate [--scenario NAME] [--jobs A:B] [--into FILE ...] [--limit-s S] [RANKS ...]

has no limit by default.  One process uses one core.  Two processes share a size with `--jobs 0:14` and `--jobs 14:28`
(end excluded), each with its own file: `--into` names the file to write, then other files to count; `--jobs 0:0` only
reports.
"""

import argparse
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from faults.simulator import SCENARIOS
from faults.simulator.detectors import ours
from faults.simulator.intervals import poisson_upper, wilson
from faults.simulator.outcome import Outcome
from faults.simulator.run import job

ROOT = Path(__file__).parent.parent
KEPT = Path(__file__).parent / "out" / "faults_weeks.jsonl"
WEEKS = {1_024: 3, 16_384: 1}
WEEK_H = 168.0
SCENARIO = "weeks"
WITHOUT = "weeks-no-probes"
SEED = 6_000
LIMIT_S = 120.0
JUDGED = (
    "fabric.py",
    "diagnosis.py",
    "simulator",
    "localisation",
    "stragglers",
    "quarantine",
    "hangs/wait_for_graph.py",
)
# Modules that only present the counts.
NOT_COUNTED = frozenset({"answer.py", "intervals.py", "c4_baseline.py", "__init__.py"})
SUMMED = (
    "hours", "windows", "false_isolations", "carried_out", "asked", "hidden", "named", "right", "wrong", "decision_s",
    "run_s",
)  # fmt: skip


def run() -> list[dict[str, Any]]:
    for ranks in WEEKS:
        _go_on(SCENARIO, ranks, [KEPT], limit_s=LIMIT_S)
    return [row for ranks in WEEKS if (row := _row(SCENARIO, ranks, [KEPT]))]


def code() -> str:
    """A digest of everything that the counts depend on."""
    digest = hashlib.sha256()
    for name in JUDGED:
        place = ROOT / "faults" / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            if not (name == "simulator" and path.name in NOT_COUNTED):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


CODE = code()  # when this process began: what it has loaded does not change any more


def count_of(ranks: int) -> int:
    return round(WEEKS[ranks] * WEEK_H * 3600.0 / SCENARIOS[SCENARIO].job_s)


def _go_on(
    name: str, ranks: int, kept: Sequence[Path], *, limit_s: float, jobs: tuple[int, int | None] = (0, None)
) -> None:
    """Simulate the missing jobs, at least one, for about this time."""
    done = {line["job"] for line in _lines(name, ranks, kept)}
    begun_s = time.monotonic()
    for at in range(count_of(ranks))[slice(*jobs)]:
        if at in done:
            continue
        line = _judged(name, ranks, at)
        kept[0].parent.mkdir(parents=True, exist_ok=True)
        with kept[0].open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if time.monotonic() - begun_s > limit_s:
            return


def _judged(name: str, ranks: int, at: int) -> dict[str, Any]:
    scenario, begun_s = SCENARIOS[name], time.process_time()
    found = job(scenario, ranks=ranks, until_s=scenario.job_s, seed=(SEED, at), panel=ours, clock_s=time.process_time)
    return {"code": CODE, "scenario": name, "ranks": ranks, "job": at, "seed": SEED} | _counts(
        found, time.process_time() - begun_s
    )


def _counts(found: Outcome, run_s: float) -> dict[str, Any]:
    tally = found.tally
    return {
        "hours": found.hours,
        "false_isolations": tally.false_isolations,
        "carried_out": tally.carried_out,
        "right": tally.right,
        "wrong": tally.wrong,
        "hidden": sum(tally.hidden.values()),
        "asked": sum(tally.asked.values()),
        "named": sum(tally.named.values()),
        "asked_of": {what.value: number for what, number in sorted(tally.asked.items())},
        "named_of": {what.value: number for what, number in sorted(tally.named.items())},
        "decision_s": sum(found.spent_s),
        "run_s": run_s,
        "windows": len(found.spent_s),
        "wrongs": [[at_s, diagnosis.model_dump(mode="json")] for at_s, diagnosis in found.wrongs[:20]],
    }


def _lines(name: str, ranks: int, kept: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Of this code; a job that two files hold counts once."""
    seen: set[int] = set()
    for path in kept:
        for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            line = json.loads(text)
            this = line["code"] == CODE and (line.get("scenario"), line.get("seed")) == (name, SEED)
            if this and line["ranks"] == ranks and line["job"] not in seen:
                seen.add(line["job"])
                yield line


def _row(name: str, ranks: int, kept: Sequence[Path]) -> dict[str, Any] | None:
    lines = list(_lines(name, ranks, kept))
    if not lines:
        return None
    sums = {what: sum(line[what] for line in lines) for what in SUMMED}
    weeks = sums["hours"] / WEEK_H
    interval = wilson(sums["named"], sums["asked"])
    return {
        "scenario": name,
        "ranks": ranks,
        "weeks": weeks,
        "windows": sums["windows"],
        "false_isolations": sums["false_isolations"],
        "false_isolations_per_week": sums["false_isolations"] / weeks,
        "per_week_upper_95": poisson_upper(sums["false_isolations"]) / weeks,
        "carried_out": sums["carried_out"],
        "carried_out_per_week_upper_95": poisson_upper(sums["carried_out"]) / weeks,
        "faults": sums["asked"],
        "hidden": sums["hidden"],
        "named": sums["named"],
        "recall_low": interval and interval[0],
        "wrong_verdicts": sums["wrong"],
        "decision_ms": 1000.0 * sums["decision_s"] / sums["windows"],
        "core_ms_per_window": 1000.0 * sums["run_s"] / sums["windows"],
    }


def _range(text: str) -> tuple[int, int | None]:
    """`A:B`, either left out."""
    first, found, last = text.partition(":")
    try:
        return int(first or 0), int(last) if last else None if found else int(first) + 1
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected A:B or a number, got {text!r}") from error


def main() -> None:
    parser = argparse.ArgumentParser(description="False isolations per cluster-week.")
    parser.add_argument("ranks", nargs="*", type=int, help=f"of {', '.join(map(str, WEEKS))}; default: all")
    parser.add_argument("--scenario", choices=(SCENARIO, WITHOUT), default=SCENARIO)
    parser.add_argument("--jobs", type=_range, default=(0, None), metavar="A:B", help="of each size; B left out")
    parser.add_argument("--into", type=Path, nargs="+", default=[KEPT], help="the first is written to, all are read")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="of a size, about")
    options = parser.parse_args()
    for size in options.ranks or WEEKS:
        if size not in WEEKS:
            parser.error(f"RANKS: expected {', '.join(map(str, WEEKS))}, got {size}")
        _go_on(options.scenario, size, options.into, limit_s=options.limit_s, jobs=options.jobs)
        print(_row(options.scenario, size, options.into), flush=True)


if __name__ == "__main__":
    main()
