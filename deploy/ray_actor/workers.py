"""The Ray workers of one node: their processes and the states of these in the kernel.

Workers are children of the raylet, as the node actor is, with titles `ray::NAME`.  Each has a slot while it lives, and
a rank from its node's index and its slot.  The end of a worker is not reported, because Ray handles it; a worker that
is stopped or hangs in the kernel is, because Ray considers it alive.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from deploy.ray_actor.messages import WorkerReport
from deploy.telemetry.processes import GONE, PROC, ProcessSource
from faults.observations import Observation, Process

SCAN_S: Final = 2.0
TITLE: Final = b"ray::"
# Workers of Ray and of this package, which do no work of the cluster's users.
SYSTEM_ACTORS: Final = frozenset(
    {"IDLE", "SPILL_IDLE", "RESTORE_IDLE", "DashboardAgent", "RuntimeEnvAgent", "ControllerActor", "NodeActor"}
)


class RayWorkers:
    name = "workers"

    def __init__(
        self,
        *,
        node: int,
        slots: int,
        raylet_pid: int,
        period_s: float = 0.25,
        proc: Path = PROC,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.period_s = period_s
        self.left_out = 0  # more workers than slots
        self.reports: tuple[WorkerReport, ...] = ()
        self._node, self._slots, self._raylet_pid = node, slots, raylet_pid
        self._proc, self._steady_s = proc, steady_s
        self._scanned_s = float("-inf")
        self._titles: dict[int, str] = {}  # of those in slots
        self._slot_of: dict[int, int] = {}
        self._source = self._source_of()

    def poll(self, now_s: float) -> list[Observation]:
        if self._steady_s() - self._scanned_s >= SCAN_S:
            self._scanned_s = self._steady_s()
            self._scan()
        observations = [observed for observed in self._source.poll(now_s) if _process(observed).state != GONE]
        self.reports = tuple(self._report(observed.rank or 0, _process(observed)) for observed in observations)
        return observations

    def close(self) -> None:
        self._source.close()

    def _report(self, rank: int, process: Process) -> WorkerReport:
        return WorkerReport(rank=rank, pid=process.pid, name=self._titles[process.pid], state=process.state)

    def _scan(self) -> None:
        found = dict(workers_of(self._raylet_pid, proc=self._proc))
        slot_of = {pid: slot for pid, slot in self._slot_of.items() if pid in found}
        free = iter(sorted(set(range(self._slots)) - set(slot_of.values())))
        new_pids = [pid for pid in sorted(found) if pid not in slot_of]
        slot_of |= dict(zip(new_pids, free, strict=False))
        self.left_out = len(found) - len(slot_of)
        self._titles = {pid: found[pid] for pid in slot_of}
        if slot_of != self._slot_of:
            self._slot_of = slot_of
            self._source.close()
            self._source = self._source_of()

    def _source_of(self) -> ProcessSource:
        pid_of = {self._node * self._slots + slot: pid for pid, slot in self._slot_of.items()}
        return ProcessSource(node=self._node, pid_of=pid_of, proc=self._proc, period_s=self.period_s)


def workers_of(raylet_pid: int, *, proc: Path = PROC) -> Iterator[tuple[int, str]]:
    for entry in proc.iterdir():
        if (
            entry.name.isdecimal()
            and _parent(entry) == raylet_pid
            and (title := _title(entry)) not in {None, *SYSTEM_ACTORS}
        ):
            yield int(entry.name), str(title)


def _parent(process: Path) -> int | None:
    try:
        fields = (process / "stat").read_bytes().rpartition(b")")[2].split(None, 2)
    except OSError:
        return None
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else None


def _title(process: Path) -> str | None:
    """Return the worker's class: `ray::Replica.handle(…)` is a Replica."""
    try:
        title = (process / "cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return None
    if not title.startswith(TITLE) or os.fsencode(process.name) == str(os.getpid()).encode():
        return None
    return title.removeprefix(TITLE).decode("utf-8", "replace").partition(".")[0].partition("(")[0]


def _process(observed: Observation) -> Process:
    if not isinstance(observed.values, Process):
        raise TypeError("a source of processes")
    return observed.values
