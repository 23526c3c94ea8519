"""Live detection in the lab: real ranks in network namespaces, faults injected, verdicts stamped as they come out.

Five kinds of fault at three victims each, and what is no fault; on the machine as it is, and with busy processes
beside.  None of these runs was ever used for tuning.  A slow link counts where its harm can be measured: the table has
the median step after it over the one before it.  Needs root for namespaces; the ranks are PyTorch's over gloo where
FLEETWRIGHT_LAB_PYTHON names an interpreter with torch, else they use the lab's own library over TCP.

    python -m bench faults_lab        FLEETWRIGHT_LAB_KEEP=DIR keeps the recordings
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from api.cli.recordings import open_recording
from faults.observations import Collective
from faults.watcher import Watcher
from tests.testbed.lab import network
from tests.testbed.lab.experiment import Experiment
from tests.testbed.lab.injections import Injection, Kind
from tests.testbed.lab.judging import expected_of, judge
from tests.testbed.lab.session import Run, run_experiment
from tests.testbed.lab.watching import LiveWatch
from tests.testbed.lab.workload import Inner, LibraryName, Workload
from tests.testbed.requirements import UnavailableError

PYTHON = "FLEETWRIGHT_LAB_PYTHON"
KEEP = "FLEETWRIGHT_LAB_KEEP"
ONLY = "FLEETWRIGHT_LAB_ONLY"  # names, with commas: for looking at some runs again
AT_S = 7.1
DURATION_S = 14.0
BUSY = 4
SEED = 7001


def run() -> list[dict[str, Any]]:
    """Every experiment, quiet and loaded."""
    try:
        network.check_allowed()
    except UnavailableError as unavailable:
        return [{"what": f"left out: {unavailable}"}]
    python = os.environ.get(PYTHON)
    only = os.environ.get(ONLY)
    wanted = [one for one in experiments("gloo" if python else "own") if only is None or one.name in only.split(",")]
    runs = [
        replace(one, busy=busy, workload=replace(one.workload, seed=SEED + 100 * busy + at))
        for busy in (0, BUSY)
        for at, one in enumerate(wanted)
    ]
    return [_row(one, Path(python) if python else None) for one in runs]


def experiments(library: LibraryName) -> Iterator[Experiment]:
    """The runs, each with its victim."""
    usual = Workload(ranks=8, duration_s=DURATION_S, library=library)
    heavy = replace(usual, all_reduce_bytes=2 << 20, compute_ms=20.0)  # a training step that waits for its network
    for node in (1, 4, 6):
        yield _outside("frozen", usual, "stop", node)
    yield _outside("node cut", usual, "node_cut", 2)
    yield _outside("node cut", usual, "node_cut", 5)
    yield _outside("pair cut", usual, "pair_cut", 4, peer=3)
    yield _outside("slow tx 1.25x", heavy, "tx", 6, rate_mbit=160.0)
    yield _outside("slow rx 1.25x", heavy, "rx", 3, rate_mbit=160.0)
    yield _outside("slow link 1.25x", heavy, "link", 5, peer=4, rate_mbit=160.0)
    yield _outside("slow tx 2x", usual, "tx", 1, rate_mbit=100.0)
    yield _outside("slow rx 2x", usual, "rx", 7, rate_mbit=100.0)
    yield _outside("slow link 2x", usual, "link", 2, peer=1, rate_mbit=100.0)
    for node, ms in ((0, 80.0), (3, 40.0), (5, 25.0)):
        yield _inside(f"computes {ms:.0f} ms longer", usual, Inner(what="delay", at_s=AT_S, rank=node, ms=ms))
    for node in (0, 4, 7):
        yield _outside("killed", usual, "kill", node)
    yield _inside("user code hangs", usual, Inner(what="hang", at_s=AT_S, rank=2))
    yield Experiment(name="healthy", workload=usual)
    yield _outside("foreign traffic", usual, "flood", 6, peer=2, seconds=3.0)
    yield _inside("imbalance", usual, Inner(what="imbalance", at_s=0.0, ms=20.0))
    yield _inside("checkpoint pause", usual, Inner(what="pause", at_s=AT_S, ms=1500.0))


def _outside(
    name: str,
    workload: Workload,
    kind: Kind,
    node: int,
    *,
    peer: int | None = None,
    rate_mbit: float | None = None,
    seconds: float | None = None,
) -> Experiment:
    what = Injection(kind=kind, at_s=AT_S, node=node, peer=peer, rate_mbit=rate_mbit, seconds=seconds)
    where = f"{node}" if peer is None else f"{node}-{peer}"
    return Experiment(name=f"{name} {where}", workload=workload, injections=(what,))


def _inside(name: str, workload: Workload, event: Inner) -> Experiment:
    where = "" if event.rank is None else f" {event.rank}"
    return Experiment(name=f"{name}{where}", workload=replace(workload, inner=(event,)))


def _row(experiment: Experiment, python: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        name = f"{experiment.name}{' loaded' if experiment.busy else ''}".replace(" ", "_")
        folder = Path(os.environ.get(KEEP, scratch)) / name
        watch = LiveWatch(Watcher)
        ran = run_experiment(experiment, folder=folder, watch=watch, python=python)
        expected = expected_of(experiment)
        began_s = min(ran.done_s.values(), default=None)
        outcome = judge(expected, watch.verdicts, began_s=began_s)
        return {
            "what": experiment.name,
            "machine": f"{experiment.busy} busy beside" if experiment.busy else "as it is",
            "load_average": ran.truth["loadavg"][0],
            "harm": _harm(folder, AT_S) if _is_slow(ran) else None,
            "class_right": int(outcome.class_right),
            "node_right": int(outcome.place_right),
            "direction_right": int(outcome.direction_right),
            "detect_s": outcome.detect_s,
            "wrong_isolations": outcome.wrong_isolations,
            "wrong_verdicts": outcome.wrong_verdicts,
            "slowest_turn_ms": 1000.0 * watch.slowest_turn_s,
        }


def _is_slow(ran: Run) -> bool:
    """Whether the job still steps afterwards."""
    return all(what.kind in {"tx", "rx", "link", "flood"} for what in ran.done_s)


def _harm(folder: Path, at_s: float) -> float | None:
    """The median step after it over the one before it."""
    arrived_s = [
        seen.values.arrived_s
        for seen in open_recording(folder).observations
        if isinstance(seen.values, Collective) and seen.values.op == "all_reduce" and seen.rank == 0
    ]
    steps = [(start_s, end_s - start_s) for start_s, end_s in pairwise(arrived_s)]
    before = [length_s for start_s, length_s in steps if 1.0 < start_s < at_s - 0.5]
    after = [length_s for start_s, length_s in steps if start_s > at_s + 0.5]
    return median(after) / median(before) if before and after else None
