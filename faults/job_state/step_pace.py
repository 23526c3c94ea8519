"""The step time of the job, which scales the limits, and the delay of its last ranks.

A rank can be late without a fault, such as by a checkpoint or garbage collection.  A delay that the job has survived is
no hang.
"""

from collections import deque
from statistics import median

from faults.observations import Collective

STEPS_KEPT = 64
SEQS_OPEN = 32
LATE_KEPT = 512


class Pace:
    """Step times and delays of the newest steps."""

    __slots__ = ("_arrivals", "_late_s", "_median", "_step", "_steps_s")

    def __init__(self) -> None:
        self._steps_s: deque[float] = deque(maxlen=STEPS_KEPT)
        self._late_s: deque[float] = deque(maxlen=LATE_KEPT)
        self._step: dict[int, tuple[int, float]] = {}
        self._arrivals: dict[tuple[str, int], list[float]] = {}
        self._median: float | None = None

    def stepped(self, rank: int, step: int, at_s: float) -> None:
        before = self._step.get(rank)
        if before is None or step < before[0]:
            self._step[rank] = (step, at_s)
        elif step > before[0]:
            self._steps_s.append((at_s - before[1]) / (step - before[0]))
            self._step[rank] = (step, at_s)
            self._median = None

    def arrived(self, record: Collective, members: int) -> None:
        """Record that a rank has finished a collective; the delay of the last rank is known once all have."""
        key = (record.group, record.seq)
        came = self._arrivals.setdefault(key, [])
        came.append(record.arrived_s)
        if len(came) >= members:
            self._late_s.append(max(came) - median(came))
            del self._arrivals[key]
        elif len(self._arrivals) > SEQS_OPEN:
            del self._arrivals[next(iter(self._arrivals))]

    def begin_anew(self) -> None:
        """Restart the operation numbers, which a new life repeats."""
        self._arrivals.clear()

    def step_s(self) -> float | None:
        """Return the median of the newest step times; None without any."""
        if self._median is None and self._steps_s:
            self._median = median(self._steps_s)
        return self._median

    def latest_s(self) -> float:
        """Return the largest delay of a rank behind the median, over the newest finished collectives."""
        return max(self._late_s, default=0.0)
