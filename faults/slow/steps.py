"""How long a step takes, from whatever tells it: records of collectives, else the step counter of heartbeats.

T_s = median over ranks of (arrival at the first operation of step s+1 - the same of step s)
"""

from collections import deque
from typing import Final

import numpy as np

from faults.fabric import Floats
from faults.observations import Collective, Heartbeat, Observation

MOST_STEPS: Final = 20_000
Z_95: Final = 1.645  # one-sided 5 %: with three hits of four and an entity beside it, far rarer
MEDIAN_LOSS: Final = 1.2533  # sqrt(pi / 2): the standard error of a median against a mean's


class Steps:
    """Step boundaries of all ranks."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._began: dict[int, dict[int, float]] = {}  # step -> rank -> first arrival
        self._by_heartbeat: list[tuple[float, int] | None] = [None] * ranks
        self.ends_s: deque[float] = deque(maxlen=MOST_STEPS)  # of finished steps
        self.takes_s: deque[float] = deque(maxlen=MOST_STEPS)
        self._records = False
        self._first_s: float | None = None

    def see(self, seen: Observation) -> None:
        """Take a collective or a heartbeat."""
        rank, values = seen.rank, seen.values
        if rank is None or not 0 <= rank < self._ranks:
            return
        if isinstance(values, Collective):
            step = values.seq if values.step is None else values.step
            self._records = True
            self._begin(step, rank, values.arrived_s)
        elif isinstance(values, Heartbeat) and not self._records:
            self._beat(rank, seen.at_s, values.step)

    def last_s(self) -> float | None:
        """When the last step that is known ended."""
        return self.ends_s[-1] if self.ends_s else None

    def first_s(self) -> float | None:
        """When the first step ended."""
        return self._first_s

    def between(self, from_s: float, to_s: float) -> Floats:
        """Durations of the steps that ended in a stretch of time."""
        return np.array([t for at, t in zip(self.ends_s, self.takes_s, strict=True) if from_s < at <= to_s])

    def recent(self, from_s: float, to_s: float, least: int) -> Floats:
        """Of a stretch of time, or the last few where it holds fewer."""
        found = self.between(from_s, to_s)
        if found.size >= least:
            return found
        known = [t for at, t in zip(self.ends_s, self.takes_s, strict=True) if at <= to_s]
        return np.array(known[-least:])

    def _begin(self, step: int, rank: int, at_s: float) -> None:
        begun = self._began.setdefault(step, {})
        if rank in begun:
            begun[rank] = min(begun[rank], at_s)
            return
        begun[rank] = at_s
        before = self._began.get(step - 1)
        if before is not None and len(begun) == self._ranks and len(before) == self._ranks:
            took_s = float(np.median([begun[r] - before[r] for r in begun]))
            if took_s > 0:
                self._end(float(np.median(list(begun.values()))), took_s)
        for old in [s for s in self._began if s < step - 8]:
            del self._began[old]

    def _beat(self, rank: int, at_s: float, step: int) -> None:
        before = self._by_heartbeat[rank]
        if before is None or step > before[1]:
            self._by_heartbeat[rank] = (at_s, step)
        if before is not None and step > before[1]:
            self._end(at_s, (at_s - before[0]) / (step - before[1]))

    def _end(self, at_s: float, took_s: float) -> None:
        if self._first_s is None:
            self._first_s = at_s
        self.ends_s.append(at_s)
        self.takes_s.append(took_s)


def harm(now_s: Floats, usual_s: Floats) -> tuple[float, float]:
    """Ratio of median step times, and the ratio that is certain at 95 %: noise can no longer explain it."""
    if now_s.size < 3 or usual_s.size < 10:
        return 1.0, 0.0
    logs, usual = np.log(now_s), np.log(usual_s)
    spread = 1.4826 * float(np.median(np.abs(usual - np.median(usual))))
    error = MEDIAN_LOSS * max(spread, 0.02) * float(np.sqrt(1 / now_s.size + 1 / usual_s.size))
    ratio = float(np.median(logs) - np.median(usual))
    return float(np.exp(ratio)), float(np.exp(ratio - Z_95 * error))
