"""The progress of a rank: its collectives counted per group and in total, and those under way.

A failed operation stays under way, and the phase is `failed`, until the job calls another.  This separates a rank that
reports an error of its peers from the rank that vanished without a report.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

Line = dict[str, Any]  # one JSON object of the schema in docs/explanation/faults/observations.md

COMPUTE, COMM, INIT, FAILED, DONE = "compute", "comm", "init", "failed", "done"  # phases
LONG_S: Final = 1.0  # an operation under way for longer is reported before it ends


@dataclass(slots=True)
class Operation:
    number: int  # of the calls of this rank
    seq: int  # in its group
    op: str
    group: str
    size_bytes: int
    arrived_s: float
    step: int | None
    reported: bool = False
    failed: bool = False

    def line(self, finished_s: float | None) -> Line:
        line: Line = {
            "seq": self.seq,
            "op": self.op,
            "n": self.size_bytes,
            "t0": round(self.arrived_s, 6),
            "t1": None if finished_s is None else round(finished_s, 6),
        }
        if self.step is not None:
            line["step"] = self.step
        if self.group:
            line["group"] = self.group
        return line


@dataclass(slots=True)
class Progress:
    """Tracks operations, which begin in the job's threads and end in torch's."""

    rank: int
    now_s: Callable[[], float] = time.time
    step: int | None = None
    passing: int = 0  # sends and receives under way
    entered: int = 0
    finished: int = 0
    failed: bool = False  # the last operation raised
    closed: bool = False  # the rank ended well
    _calls: int = 0
    _seqs: dict[str, int] = field(default_factory=dict)
    _open: dict[int, Operation] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, op: str, *, group: str, size_bytes: int) -> Operation:
        with self._lock:
            self._clear_failure()
            self.entered += 1
            self._calls += 1
            seq = self._seqs[group] = self._seqs.get(group, 0) + 1
            begun = Operation(self._calls, seq, op, group, size_bytes, self.now_s(), self.step)
            self._open[begun.number] = begun
        return begun

    def end(self, operation: Operation) -> float | None:
        """Return the time of the end; None if the operation had ended before."""
        finished_s = self.now_s()
        with self._lock:
            if operation.failed or self._open.pop(operation.number, None) is None:
                return None
            self.finished = self.entered - len(self._open)
        return finished_s

    def fail(self, operation: Operation | None) -> bool:
        """Record that the operation, or a pass (None), raised, and return whether this is the first failure."""
        with self._lock:
            if operation is not None:
                operation.failed = True
            first, self.failed = not self.failed, True
        return first

    def withdraw(self, operation: Operation) -> None:
        """Drop an operation that was refused before any other rank could observe it, so it is not counted."""
        with self._lock:
            if self._open.pop(operation.number, None) is not None:
                self.entered -= 1
                self._seqs[operation.group] -= 1

    def begin_pass(self) -> None:
        with self._lock:
            self._clear_failure()
            self.passing += 1

    def end_pass(self) -> None:
        with self._lock:
            self.passing = max(0, self.passing - 1)

    def close(self) -> None:
        """Record the end of the rank: `done`, unless an operation raised or is under way."""
        with self._lock:
            self.closed = not (self.failed or self._open or self.passing)

    def _clear_failure(self) -> None:
        """Continue after a failure: a job that makes another call has abandoned the failed operation."""
        if self.failed:
            self.failed = False
            self.passing = 0
            self._open = {number: one for number, one in self._open.items() if not one.failed}
            self.finished = self.entered - len(self._open)

    def is_open(self, operation: Operation) -> bool:
        return operation.number in self._open

    def long_under_way(self) -> list[Line]:
        """Return the unreported operations that take longer than `LONG_S`."""
        now_s = self.now_s()
        with self._lock:
            found = [one for one in self._open.values() if not one.reported and now_s - one.arrived_s >= LONG_S]
            for one in found:
                one.reported = True
        return [one.line(None) for one in found]

    def beat(self) -> Line:
        with self._lock:
            under_way = next(iter(self._open.values()), None)
            return {
                "t": round(self.now_s(), 6),
                "rank": self.rank,
                "enq": self.entered,
                "done": self.finished,
                "op": under_way.op if under_way else "p2p" if self.passing > 0 else None,
                "step": self.step or 0,
                "phase": self._phase(),
            }

    def _phase(self) -> str:
        if self.failed or self.closed:
            return FAILED if self.failed else DONE
        if self._open or self.passing > 0:
            return COMM
        return COMPUTE if self.entered else INIT


def group_text(ranks: Sequence[int], *, world: int) -> str:
    """Return a short name of a group's ranks, equal on each rank: empty for the world, `0-7`, `0-56:8`, `1,4,6`."""
    if len(ranks) == world:
        return ""
    if len(ranks) < 2:
        return ",".join(map(str, ranks))
    stride = ranks[1] - ranks[0]
    regular = stride > 0 and all(later - earlier == stride for earlier, later in pairwise(ranks))
    if not regular or len(ranks) == 2:
        return ",".join(map(str, ranks))
    return f"{ranks[0]}-{ranks[-1]}" + (f":{stride}" if stride > 1 else "")
