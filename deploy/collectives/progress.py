"""How far a rank is: its collectives counted per group and in all, and which of them are under way."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from deploy.collectives.outlets import Line

LONG_S: Final = 1.0  # under way for so long, an operation is told of before it is through


@dataclass(slots=True)
class Operation:
    """One collective of this rank."""

    number: int  # in this rank
    seq: int  # in its group
    op: str
    group: str
    size_bytes: int
    arrived_s: float
    step: int | None
    told: bool = False

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
    _seqs: dict[str, int] = field(default_factory=dict)
    _open: dict[int, Operation] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, op: str, *, group: str, size_bytes: int) -> Operation:
        """The rank calls a collective."""
        with self._lock:
            self.entered += 1
            seq = self._seqs[group] = self._seqs.get(group, 0) + 1
            begun = Operation(self.entered, seq, op, group, size_bytes, self.now_s(), self.step)
            self._open[begun.number] = begun
        return begun

    def end(self, operation: Operation) -> float | None:
        """It is through: when; None where that was known before."""
        finished_s = self.now_s()
        with self._lock:
            if self._open.pop(operation.number, None) is None:
                return None
            self.finished = self.entered - len(self._open)
        return finished_s

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
            busy = under_way is not None or self.passing > 0
            phase = "comm" if busy else "compute" if self.entered else "init"
            return {
                "t": round(self.now_s(), 6),
                "rank": self.rank,
                "enq": self.entered,
                "done": self.finished,
                "op": under_way.op if under_way else "p2p" if self.passing > 0 else None,
                "step": self.step or 0,
                "phase": phase,
            }


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
