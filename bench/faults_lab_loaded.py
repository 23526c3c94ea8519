"""Mild network faults on a loaded host: a link or one direction of a NIC slowed to 1.25x beside busy processes.

The load average is at least MIN_LOAD before the first run, and the runs keep it there: each has BUSY busy processes.
A seed draws nodes and the workload.  One healthy run follows four faults.  The last rows sum up: shares, and the 95th
percentile of the time to detect.  See `faults_lab` for the environment.
"""

import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

from bench.faults_lab import HEAVY, PYTHON, RATE_MBIT, SLOW, next_node, outside, row_of
from bench.harness import Row
from tests.testbed.lab import network
from tests.testbed.lab.experiment import Experiment
from tests.testbed.lab.session import busy
from tests.testbed.lab.workload import LibraryName

SEED: Final = 260_711  # no detector was tuned on it
FAULTS: Final = 40
HEALTHY_EVERY: Final = 4
SLOWER: Final = 1.25
BUSY: Final = 24  # in each run, once its ranks are connected
MIN_LOAD: Final = 15.0
MAX_WAIT_S: Final = 240.0
HARMFUL: Final = 1.03


def run() -> list[Row]:
    network.check_allowed()
    python = os.environ.get(PYTHON)
    with busy(BUSY):
        _wait_for_load()
        rows = [
            row_of(one, Path(python) if python else None) for one in experiments("gloo" if python else "own", seed=SEED)
        ]
    rows = [{**row, "machine": f"{BUSY} busy beside"} for row in rows]
    return [*rows, *_summaries(rows)]


def experiments(library: LibraryName, *, seed: int) -> Iterator[Experiment]:
    rng = Random(seed)
    for at in range(FAULTS):
        workload = replace(HEAVY, library=library, seed=rng.randrange(1 << 30))
        kind, node = SLOW[at % len(SLOW)], rng.randrange(workload.ranks)
        peer = next_node(node) if kind == "link" else None
        name = f"{at} {kind} {SLOWER}x"
        yield outside(name, workload, kind, node, peer=peer, rate_mbit=RATE_MBIT / SLOWER)
        if at % HEALTHY_EVERY == HEALTHY_EVERY - 1:
            yield Experiment(name=f"{at} healthy", workload=replace(workload, seed=rng.randrange(1 << 30)))


def _summaries(rows: list[Row]) -> Iterator[Row]:
    """Sum up all faults, those that lengthened the median step by 3 %, and the healthy runs."""
    faults = [row for row in rows if "healthy" not in row["case"]]
    yield _summary("all faults", faults)
    yield _summary("harmful faults", [row for row in faults if (row["harm"] or 0.0) >= HARMFUL])
    yield _summary("healthy", [row for row in rows if "healthy" in row["case"]])


def _summary(name: str, rows: list[Row]) -> Row:
    times_s = sorted(row["detect_s"] for row in rows if row["detect_s"] is not None)
    return {
        "case": f"{name}: {len(rows)}",
        "machine": f"{BUSY} busy beside",
        "load_average": min(row["load_average"] for row in rows),
        "class_right": sum(row["class_right"] for row in rows) / len(rows),
        "node_right": sum(row["node_right"] for row in rows) / len(rows),
        "direction_right": sum(row["direction_right"] for row in rows) / len(rows),
        "detect_s": times_s[math.ceil(0.95 * len(times_s)) - 1] if times_s else None,
        "wrong_isolations": sum(row["wrong_isolations"] for row in rows),
        "wrong_diagnoses": sum(row["wrong_diagnoses"] for row in rows),
    }


def _wait_for_load() -> None:
    """Wait until the load average over one minute has risen."""
    until_s = time.monotonic() + MAX_WAIT_S
    while os.getloadavg()[0] < MIN_LOAD:
        if time.monotonic() > until_s:
            raise TimeoutError(f"the load average is {os.getloadavg()[0]:g} after {MAX_WAIT_S:g} s, not {MIN_LOAD:g}")
        time.sleep(1.0)
