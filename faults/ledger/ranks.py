"""One rank: whether its process lives, and how far it is."""

from faults.observations import Heartbeat, Process

GONE = frozenset({"gone", "Z", "X"})
STOPPED = frozenset({"T", "t"})
ALIVE_PHASES = frozenset({"compute", "comm"})
FAILED = "failed"  # a collective raised: what a rank says last that complains of another
DONE = "done"


class RankSeen:
    """The newest word of a rank.  `entered` and `finished` count collectives, by heartbeat or by record."""

    __slots__ = (
        "beat_s",
        "beats_since_entered",
        "entered",
        "entered_s",
        "finished",
        "finished_s",
        "gone_s",
        "longest_gap_s",
        "node",
        "op",
        "phase",
        "records_s",
        "step",
        "stopped_s",
    )

    def __init__(self, node: int) -> None:
        self.node = node
        self.beat_s: float | None = None
        self.longest_gap_s = 0.0  # between two heartbeats, fading
        self.beats_since_entered = 0
        self.entered = 0
        self.entered_s: float | None = None  # when it was first known to be that far
        self.finished = 0
        self.finished_s: float | None = None
        self.records_s: float | None = None  # the last record of a collective: what is finished is then known at once
        self.op: str | None = None
        self.phase = ""
        self.step = -1
        self.stopped_s: float | None = None
        self.gone_s: float | None = None

    def beat(self, at_s: float, heartbeat: Heartbeat, *, fade: float) -> None:
        """Its heartbeat thread spoke."""
        if self.beat_s is not None and heartbeat.phase in ALIVE_PHASES and self.phase in ALIVE_PHASES:
            self.longest_gap_s = max(self.longest_gap_s * fade, at_s - self.beat_s)
        self.beat_s, self.op, self.phase = at_s, heartbeat.op, heartbeat.phase
        self.step = max(self.step, heartbeat.step)
        self.come(at_s, heartbeat.entered)
        self.through(at_s, heartbeat.finished)
        self.beats_since_entered += 1
        if heartbeat.phase not in (FAILED, DONE):
            self.gone_s = None

    def come(self, at_s: float, seq: int) -> None:
        """It has called that collective."""
        if seq > self.entered:
            self.entered, self.entered_s, self.beats_since_entered = seq, at_s, 0

    def through(self, at_s: float, seq: int) -> None:
        """It has that collective behind it."""
        self.come(at_s, seq)
        if seq > self.finished:
            self.finished, self.finished_s = seq, at_s

    def process(self, at_s: float, process: Process) -> None:
        """Its process as the kernel has it."""
        self.stopped_s = (self.stopped_s or at_s) if process.state in STOPPED else None
        self.gone_s = (self.gone_s or at_s) if process.state in GONE else None

    @property
    def pending(self) -> bool:
        """Whether it waits in a collective."""
        return self.entered > self.finished

    def moved_s(self) -> float | None:
        """When it last got through or into anything."""
        moved = [at for at in (self.entered_s, self.finished_s) if at is not None]
        return max(moved, default=None)
