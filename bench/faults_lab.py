"""Live detection in the lab: real ranks in network namespaces, injected faults, diagnoses timed as they appear.

Five kinds of fault at three nodes each, and healthy controls; on the idle machine and with busy processes beside.  A
seed draws nodes and strengths.  A slow link counts if its harm is measurable: the table has the ratio of the median
step after the fault to the one before.  Needs root for namespaces.  The ranks use PyTorch's gloo if
FLEETWRIGHT_LAB_PYTHON names an interpreter with torch, else the lab's own TCP library.  FLEETWRIGHT_LAB_KEEP names a
folder for the recordings.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from api.cli.faults.recordings import open_recording
from bench.harness import Row
from faults.monitor import FaultMonitor
from faults.observations import Collective
from tests.testbed.lab import network
from tests.testbed.lab.experiment import Experiment
from tests.testbed.lab.injections import Injection, Kind
from tests.testbed.lab.judging import expected_of, judge
from tests.testbed.lab.session import Run, run_experiment
from tests.testbed.lab.watching import LiveWatch
from tests.testbed.lab.workload import Inner, LibraryName, Workload

PYTHON = "FLEETWRIGHT_LAB_PYTHON"
KEEP = "FLEETWRIGHT_LAB_KEEP"
SEEDS = {0: 98_051, 4: 98_052}  # by the number of busy processes beside; no detector was tuned on these
RANKS = 8
AT_S = 7.1
DURATION_S = 14.0
RATE_MBIT = 200.0
MILD, PLAIN = (1.25, 1.5), (1.8, 2.6)  # how many times slower
LONGER_MS = (25.0, 100.0)
SLOW: Final[tuple[Kind, ...]] = ("tx", "rx", "link")
# A training step that waits for its network.
HEAVY: Final = Workload(ranks=RANKS, duration_s=DURATION_S, all_reduce_bytes=2 << 20, compute_ms=20.0)


def run() -> list[Row]:
    network.check_allowed()
    python = os.environ.get(PYTHON)
    runs = [
        replace(one, busy=busy, workload=replace(one.workload, seed=seed + 100 * busy + at))
        for busy, seed in SEEDS.items()
        for at, one in enumerate(experiments("gloo" if python else "own", seed=seed))
    ]
    return [row_of(one, Path(python) if python else None) for one in runs]


def experiments(library: LibraryName, *, seed: int) -> Iterator[Experiment]:
    rng = Random(seed)
    usual = Workload(ranks=RANKS, duration_s=DURATION_S, library=library)
    heavy = replace(HEAVY, library=library)
    yield from (outside("frozen", usual, "stop", node) for node in _three(rng))
    cut, sender, other = _three(rng)
    yield outside("node cut", usual, "node_cut", cut)
    yield from (outside("pair cut", usual, "pair_cut", node, peer=next_node(node)) for node in (sender, other))
    for workload, between in ((heavy, MILD), (usual, PLAIN)):
        for kind, node in zip(SLOW, _three(rng), strict=True):
            times = round(rng.uniform(*between), 2)
            peer = next_node(node) if kind == "link" else None
            yield outside(f"slow {kind} {times}x", workload, kind, node, peer=peer, rate_mbit=RATE_MBIT / times)
    for node in _three(rng):
        ms = round(rng.uniform(*LONGER_MS))
        yield _inside(f"computes {ms} ms longer", usual, Inner(what="delay", at_s=AT_S, rank=node, ms=float(ms)))
    yield from (outside("killed", usual, "kill", node) for node in _three(rng))
    hangs, floods, flooded = _three(rng)
    yield _inside("user code hangs", usual, Inner(what="hang", at_s=AT_S, rank=hangs))
    yield Experiment(name="healthy", workload=usual)
    yield outside("foreign traffic", usual, "flood", floods, peer=flooded, seconds=3.0)
    yield _inside("imbalance", usual, Inner(what="imbalance", at_s=0.0, ms=rng.uniform(10.0, 30.0)))
    yield _inside("checkpoint pause", usual, Inner(what="pause", at_s=AT_S, ms=rng.uniform(800.0, 2000.0)))


def _three(rng: Random) -> list[int]:
    return rng.sample(range(RANKS), 3)


def next_node(node: int) -> int:
    return (node - 1) % RANKS


def outside(
    name: str,
    workload: Workload,
    kind: Kind,
    node: int,
    *,
    peer: int | None = None,
    rate_mbit: float | None = None,
    seconds: float | None = None,
) -> Experiment:
    injection = Injection(kind=kind, at_s=AT_S, node=node, peer=peer, rate_mbit=rate_mbit, seconds=seconds)
    where = f"{node}" if peer is None else f"{node}-{peer}"
    return Experiment(name=f"{name} {where}", workload=workload, injections=(injection,))


def _inside(name: str, workload: Workload, event: Inner) -> Experiment:
    where = "" if event.rank is None else f" {event.rank}"
    return Experiment(name=f"{name}{where}", workload=replace(workload, inner=(event,)))


def row_of(experiment: Experiment, python: Path | None) -> Row:
    with tempfile.TemporaryDirectory() as scratch:
        name = f"{experiment.name}{' loaded' if experiment.busy else ''}".replace(" ", "_")
        folder = Path(os.environ.get(KEEP, scratch)) / name
        watch = LiveWatch(FaultMonitor)
        ran = run_experiment(experiment, folder=folder, watch=watch, python=python)
        expected = expected_of(experiment)
        began_s = min(ran.done_s.values(), default=None)
        outcome = judge(expected, watch.diagnoses, began_s=began_s)
        return {
            "case": experiment.name,
            "machine": f"{experiment.busy} busy beside" if experiment.busy else "as it is",
            "load_average": ran.truth["loadavg"][0],
            "harm": _harm(folder, AT_S) if _is_slow(ran) else None,
            "class_right": int(outcome.class_right),
            "node_right": int(outcome.place_right),
            "direction_right": int(outcome.direction_right),
            "detect_s": outcome.detect_s,
            "wrong_isolations": outcome.wrong_isolations,
            "wrong_diagnoses": outcome.wrong_diagnoses,
            "slowest_turn_ms": 1000.0 * watch.slowest_turn_s,
        }


def _is_slow(ran: Run) -> bool:
    return all(injection.kind in {"tx", "rx", "link", "flood"} for injection in ran.done_s)


def _harm(folder: Path, at_s: float) -> float | None:
    """The median step after it over the one before it."""
    arrived_s = [
        observation.values.arrived_s
        for observation in open_recording(folder).observations
        if isinstance(observation.values, Collective)
        and observation.values.op == "all_reduce"
        and observation.rank == 0
    ]
    steps = [(start_s, end_s - start_s) for start_s, end_s in pairwise(arrived_s)]
    before = [length_s for start_s, length_s in steps if 1.0 < start_s < at_s - 0.5]
    after = [length_s for start_s, length_s in steps if start_s > at_s + 0.5]
    return median(after) / median(before) if before and after else None
