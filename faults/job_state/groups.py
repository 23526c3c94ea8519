"""Progress of each rank in each group (communicator)."""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

RESTART_S = 0.5  # no process starts faster; repeated records and corrected clocks differ by milliseconds


class Pending(NamedTuple):
    op: str | None
    since_s: float | None


@dataclass(slots=True)
class GroupProgress:
    """The members of a group, and the number of operations that each has called and finished."""

    members: set[int]
    description: str = ""
    listed: tuple[int, ...] = ()  # the members that the newest dump lists
    entered: dict[int, int] = field(default_factory=dict)
    started: dict[int, int] = field(default_factory=dict)  # only of dumps with the times of the device
    finished: dict[int, int] = field(default_factory=dict)
    pending: dict[int, Pending] = field(default_factory=dict)
    reported_s: dict[int, float] = field(default_factory=dict)  # last report of a rank in this group
    ended_s: dict[int, float] = field(default_factory=dict)  # time of its last finished operation, by its own record
    called_s: dict[int, float] = field(default_factory=dict)  # time of its newest call, by its dump

    def record_call(self, at_s: float, rank: int, seq: int, pending: Pending) -> None:
        """Record that `rank` has called operation `seq`."""
        self.members.add(rank)
        self.reported_s[rank] = at_s
        if seq > self.entered.get(rank, -1):
            self.entered[rank] = seq
            self.pending[rank] = pending

    def record_finish(self, at_s: float, rank: int, seq: int, *, finished_s: float) -> None:
        """Record that `rank` has finished operation `seq`."""
        self.record_call(at_s, rank, seq, Pending(None, None))
        if seq >= self.finished.get(rank, -1):
            self.finished[rank], self.ended_s[rank] = seq, finished_s

    def restarted(self, rank: int, seq: int, *, arrived_s: float) -> bool:
        """Return whether `rank` counts from the start again: it calls a finished operation some time after its end."""
        finished_s = self.ended_s.get(rank)
        return finished_s is not None and seq <= self.finished[rank] and arrived_s > finished_s + RESTART_S

    def reset(self, rank: int) -> None:
        """Discard the progress of the rank's earlier life; it stays a member."""
        for fields in (self.entered, self.started, self.finished, self.pending):
            fields.pop(rank, None)
        for times_s in (self.ended_s, self.reported_s, self.called_s):
            times_s.pop(rank, None)


RAS_PREFIX = "ras:"  # of the name of a communicator in NCCL RAS
PAIR = "->"  # in the name of a pair of ranks: "43 0->12"
_REGULAR = re.compile(r"(\d{1,7})-(\d{1,7})(?::(\d{1,7}))?")
_LIST = re.compile(r"\d{1,7}(?:,\d{1,7})+")


def ranks_of(text: str, *, below: int) -> tuple[int, ...]:
    """Return the ranks of a short group name such as `0-7`, `0-56:8` or `1,4,6`; empty for another name."""
    if match := _REGULAR.fullmatch(text):
        first, last, stride = int(match[1]), int(match[2]), int(match[3] or 1)
        ranks = tuple(range(first, min(last + 1, below), stride)) if stride and last < below else ()
    else:
        ranks = tuple(map(int, text.split(","))) if _LIST.fullmatch(text) else ()
    return ranks if all(rank < below for rank in ranks) else ()
