"""One rank: whether its process lives, and its progress; counters only grow within one life of a rank.

docs/explanation/faults/hangs.md, "Restart in place"
"""

from dataclasses import dataclass
from math import inf

from faults.observations import Heartbeat, Process

GONE = frozenset({"gone", "Z", "X"})
STOPPED = frozenset({"T", "t"})
ALIVE_PHASES = frozenset({"compute", "comm"})
FAILED = "failed"  # a collective raised an error: the last report of a rank that failed because of another
DONE = "done"


@dataclass(slots=True)
class RankProgress:
    """The newest reports of a rank.  `entered` and `finished` count collectives, by heartbeat or by record."""

    node: int
    life_start_s: float = -inf  # start of its current life, if an earlier one was observed
    beat_s: float | None = None
    beat_finished: int | None = None  # finished collectives of its last heartbeat
    longest_gap_s: float = 0.0  # between two heartbeats, fading
    beats_since_entered: int = 0
    entered: int = 0
    entered_s: float | None = None  # when this progress was first known
    finished: int = 0
    finished_s: float | None = None
    records_s: float | None = None  # the last record of a collective; records show finished operations at once
    op: str | None = None
    phase: str = ""
    step: int = -1
    stopped_s: float | None = None
    gone_s: float | None = None

    def restarted(self, at_s: float, heartbeat: Heartbeat) -> bool:
        later = self.beat_s is not None and at_s > self.beat_s
        return later and self.beat_finished is not None and heartbeat.entered < self.beat_finished

    def restart(self, at_s: float) -> None:
        self.life_start_s, self.entered_s, self.finished_s = at_s, at_s, None
        self.entered = self.finished = self.beats_since_entered = 0
        self.step, self.phase, self.beat_finished = -1, "", None
        self.stopped_s = self.gone_s = None

    def beat(self, at_s: float, heartbeat: Heartbeat, *, fade: float) -> None:
        if at_s < self.life_start_s:
            return
        if self.beat_s is not None and heartbeat.phase in ALIVE_PHASES and self.phase in ALIVE_PHASES:
            self.longest_gap_s = max(self.longest_gap_s * fade, at_s - self.beat_s)
        self.beat_s, self.op, self.phase = at_s, heartbeat.op, heartbeat.phase
        self.step = max(self.step, heartbeat.step)
        self.beat_finished = max(heartbeat.finished, self.beat_finished or 0)
        self.record_call(at_s, heartbeat.entered)
        self.record_finish(at_s, heartbeat.finished)
        self.beats_since_entered += 1
        if heartbeat.phase not in (FAILED, DONE):
            self.gone_s = None

    def record_call(self, at_s: float, seq: int) -> None:
        """Record that the rank has called this collective."""
        if seq > self.entered:
            self.entered, self.entered_s, self.beats_since_entered = seq, at_s, 0

    def record_finish(self, at_s: float, seq: int) -> None:
        """Record that the rank has finished this collective."""
        self.record_call(at_s, seq)
        if seq > self.finished:
            self.finished, self.finished_s = seq, at_s

    def process(self, at_s: float, process: Process) -> None:
        self.stopped_s = (self.stopped_s or at_s) if process.state in STOPPED else None
        self.gone_s = (self.gone_s or at_s) if process.state in GONE else None

    @property
    def pending(self) -> bool:
        return self.entered > self.finished

    def moved_s(self) -> float | None:
        """Return when the rank last entered or finished a collective."""
        moved = [at for at in (self.entered_s, self.finished_s) if at is not None]
        return max(moved, default=None)
