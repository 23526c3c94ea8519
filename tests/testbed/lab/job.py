"""Runs one rank of the lab's job: steps of computation and collectives until it is killed."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np

from tests.testbed.lab.collectives import Bytes, Floats, Library, own_library
from tests.testbed.lab.gloo import GlooLibrary
from tests.testbed.lab.records import RecordedLibrary
from tests.testbed.lab.workload import Inner, Plan, Workload

GO: Final = "go"  # appears when all are ready, and contains the start time
READY: Final = "ready"
FLIGHT_BEFORE_END_S: Final = 1.5
FOR_EVER_S: Final = 3600.0
LEAVES_S: Final = 1.5  # a trainer whose collective fails reports it, cleans up and ends within seconds


def run_rank(rank: int, *, folder: Path) -> None:
    """Connect to the other ranks, wait for the start, then run steps forever."""
    plan = Plan.read(folder)
    library = _library(plan, rank, folder)
    steps = _Steps(rank=rank, workload=plan.workload, library=library)
    steps.one(delay_s=0.0)  # connections and buffers, before the clock runs
    (folder / f"{READY}{rank}").touch()
    zero_s = _wait_for_start(folder)
    if isinstance(library, GlooLibrary):
        _dump_before_end(library, plan, rank)
    try:
        for delay_s in delays(plan.workload, rank=rank, since_start_s=lambda: time.time() - zero_s):
            steps.one(delay_s=delay_s)
    finally:
        time.sleep(LEAVES_S)


class _Steps:
    """Holds the buffers and runs a step on them."""

    def __init__(self, *, rank: int, workload: Workload, library: Library) -> None:
        self._rank, self._workload, self._library = rank, workload, library
        self._number = 0
        self._values: Floats = np.ones(workload.all_reduce_bytes // 4, np.float32)
        self._out, self._into = _pair(workload.all_to_all_bytes * workload.ranks)
        self._pass_out, self._pass_into = _pair(workload.pass_bytes)

    def one(self, *, delay_s: float) -> None:
        """Compute, then run the collectives."""
        self._library.step(self._number)
        time.sleep(delay_s)
        self._values[:] = self._rank
        self._library.all_reduce(self._values)
        self._check()
        self._library.all_to_all(self._out, self._into)
        if self._workload.pass_bytes:
            self._library.ring_pass(self._pass_out, self._pass_into)
        self._number += 1

    def _check(self) -> None:
        """Check that every element is the sum over all ranks, so all data was transferred."""
        ranks = self._workload.ranks
        if not (self._values == ranks * (ranks - 1) / 2).all():
            raise RuntimeError("the all-reduce is wrong")


def delays(load: Workload, *, rank: int, since_start_s: Callable[[], float]) -> Iterator[float]:
    """Yield the computation time of each step, including injected faults."""
    rng = random.Random(1000 * load.seed + rank)
    paused: set[Inner] = set()
    while True:
        ms = rng.gauss(load.compute_ms, load.compute_sd_ms)
        now_s = since_start_s()
        for event in load.inner:
            if event.concerns(rank, now_s) and event not in paused:
                ms += _extra_ms(event, rng)
                if event.what == "pause":
                    paused.add(event)
        yield max(0.0, ms / 1000.0)


def _extra_ms(event: Inner, rng: random.Random) -> float:
    if event.what == "hang":
        return 1000.0 * FOR_EVER_S
    return rng.expovariate(1.0) * event.ms if event.what == "imbalance" else event.ms


def _library(plan: Plan, rank: int, folder: Path) -> Library:
    size = plan.workload.ranks
    if plan.workload.library == "gloo":
        return GlooLibrary(rank=rank, size=size, store=folder / "store", to=plan.sink(rank))
    library = own_library(rank=rank, size=size, address=plan.addresses.__getitem__)
    return RecordedLibrary(library, rank=rank, size=size, to=plan.sink(rank))


def _dump_before_end(library: GlooLibrary, plan: Plan, rank: int) -> None:
    """Write the flight recorder of each process that still responds."""
    path = Path(plan.records) / f"fr_rank{rank}.json"
    timer = threading.Timer(plan.workload.duration_s - FLIGHT_BEFORE_END_S, library.dump_flight, [path])
    timer.daemon = True
    timer.start()


def _wait_for_start(folder: Path) -> float:
    path = folder / GO
    while not path.exists():
        time.sleep(0.01)
    zero_s = float(path.read_text())
    time.sleep(max(0.0, zero_s - time.time()))
    return zero_s


def _pair(size_bytes: int) -> tuple[Bytes, Bytes]:
    return np.ones(size_bytes, np.uint8), np.zeros(size_bytes, np.uint8)
