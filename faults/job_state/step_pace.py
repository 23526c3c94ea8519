"""How long the job's own steps take, so that patience is counted in them.

Also how late the last rank has come without anything being wrong: a checkpoint that one rank writes, a collection of
garbage.  What a job has been seen to survive is no hang.
"""

from collections import deque
from statistics import median

from faults.observations import Collective

STEPS_KEPT = 64
SEQS_OPEN = 32
LATE_KEPT = 512


class Pace:
    """Step times and lateness, over the newest steps only."""

    __slots__ = ("_arrivals", "_late_s", "_median", "_step", "_steps_s")

    def __init__(self) -> None:
        self._steps_s: deque[float] = deque(maxlen=STEPS_KEPT)
        self._late_s: deque[float] = deque(maxlen=LATE_KEPT)
        self._step: dict[int, tuple[int, float]] = {}
        self._arrivals: dict[tuple[str, int], list[float]] = {}
        self._median: float | None = None

    def stepped(self, rank: int, step: int, at_s: float) -> None:
        """`rank` was seen in `step`."""
        before = self._step.get(rank)
        if before is None or step < before[0]:
            self._step[rank] = (step, at_s)
        elif step > before[0]:
            self._steps_s.append((at_s - before[1]) / (step - before[0]))
            self._step[rank] = (step, at_s)
            self._median = None

    def arrived(self, record: Collective, members: int) -> None:
        """A rank got through a collective: when all have, how late the last came is known."""
        key = (record.group, record.seq)
        came = self._arrivals.setdefault(key, [])
        came.append(record.arrived_s)
        if len(came) >= members:
            self._late_s.append(max(came) - median(came))
            del self._arrivals[key]
        elif len(self._arrivals) > SEQS_OPEN:
            del self._arrivals[next(iter(self._arrivals))]

    def begin_anew(self) -> None:
        """Operations of a new life have numbers of the old one."""
        self._arrivals.clear()

    def step_s(self) -> float | None:
        """The median step of late; None while none is known."""
        if self._median is None and self._steps_s:
            self._median = median(self._steps_s)
        return self._median

    def latest_s(self) -> float:
        """The latest that a rank has come of late, behind the median, in collectives that were finished."""
        return max(self._late_s, default=0.0)
