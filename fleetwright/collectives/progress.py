"""How far a rank is: its collectives counted per group and in all, and which of them are under way.

An operation that raised is not behind the rank.  It stays under way, and the phase is `failed`, until the job calls
another: a rank that complains of its peers is then told from the one that went without a word.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from fleetwright.collectives.records import Line

COMPUTE, COMM, INIT, FAILED, DONE = "compute", "comm", "init", "failed", "done"  # phases
LONG_S: Final = 1.0  # under way for so long, an operation is told of before it is through


@dataclass(slots=True)
class Operation:
    """One collective of this rank."""

    number: int  # of the calls of this rank
    seq: int  # in its group
    op: str
    group: str
    size_bytes: int
    arrived_s: float
    step: int | None
    told: bool = False
    failed: bool = False

    def line(self, finished_s: float | None) -> Line:
        """As the schema has it."""
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
    """Of one rank.  Operations begin in the job's threads and end in torch's."""

    rank: int
    now_s: Callable[[], float] = time.time
    step: int | None = None
    passing: int = 0  # sends and receives that are waited for
    entered: int = 0
    finished: int = 0
    failed: bool = False  # the last that it called or waited for raised
    closed: bool = False  # it said that it is done
    _calls: int = 0
    _seqs: dict[str, int] = field(default_factory=dict)
    _open: dict[int, Operation] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, op: str, *, group: str, size_bytes: int) -> Operation:
        """The rank calls a collective."""
        with self._lock:
            self._go_on()
            self.entered += 1
            self._calls += 1
            seq = self._seqs[group] = self._seqs.get(group, 0) + 1
            begun = Operation(self._calls, seq, op, group, size_bytes, self.now_s(), self.step)
            self._open[begun.number] = begun
        return begun

    def end(self, operation: Operation) -> float | None:
        """It is through: when; None where that was known before."""
        finished_s = self.now_s()
        with self._lock:
            if operation.failed or self._open.pop(operation.number, None) is None:
                return None
            self.finished = self.entered - len(self._open)
        return finished_s

    def fail(self, operation: Operation | None) -> bool:
        """It raised, or a pass did: whether that is news."""
        with self._lock:
            if operation is not None:
                operation.failed = True
            news, self.failed = not self.failed, True
        return news

    def withdraw(self, operation: Operation) -> None:
        """It was refused before any other rank could know of it: it never was."""
        with self._lock:
            if self._open.pop(operation.number, None) is not None:
                self.entered -= 1
                self._seqs[operation.group] -= 1

    def begin_pass(self) -> None:
        """A send or a receive is called."""
        with self._lock:
            self._go_on()
            self.passing += 1

    def end_pass(self) -> None:
        """It is over."""
        with self._lock:
            self.passing = max(0, self.passing - 1)

    def close(self) -> None:
        """The rank is through with its job: done, unless something raised or is under way."""
        with self._lock:
            self.closed = not (self.failed or self._open or self.passing)

    def _go_on(self) -> None:
        """A job that calls on after a failure has given up what failed."""
        if self.failed:
            self.failed = False
            self.passing = 0
            self._open = {number: one for number, one in self._open.items() if not one.failed}
            self.finished = self.entered - len(self._open)

    def is_open(self, operation: Operation) -> bool:
        """Whether it is not known to be through."""
        return operation.number in self._open

    def long_under_way(self) -> list[Line]:
        """Operations that take long and were not told of yet."""
        now_s = self.now_s()
        with self._lock:
            found = [one for one in self._open.values() if not one.told and now_s - one.arrived_s >= LONG_S]
            for one in found:
                one.told = True
        return [one.line(None) for one in found]

    def beat(self) -> Line:
        """A heartbeat."""
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
    """A group's ranks in short, the same in each of them: empty for the whole world, `0-7`, `0-56:8`, `1,4,6`."""
    if len(ranks) == world:
        return ""
    if len(ranks) < 2:
        return ",".join(map(str, ranks))
    stride = ranks[1] - ranks[0]
    regular = stride > 0 and all(later - earlier == stride for earlier, later in pairwise(ranks))
    if not regular or len(ranks) == 2:
        return ",".join(map(str, ranks))
    return f"{ranks[0]}-{ranks[-1]}" + (f":{stride}" if stride > 1 else "")
