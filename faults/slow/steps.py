"""Step durations, from records of collectives, otherwise from the step counter of heartbeats.

T_s = median over ranks of (arrival at the first operation of step s+1 - the same of step s)
"""

from dataclasses import dataclass, replace
from math import erfc, sqrt
from typing import Final

import numpy as np

from faults.fabric import Floats
from faults.observations import Collective, Heartbeat, Observation

MAX_STEPS: Final = 16_384
INFORMATIVE: Final = 1024  # steps of a baseline: its median is then good to 4 % of a standard deviation
MEDIAN_LOSS: Final = 1.2533  # sqrt(pi / 2): the standard error of a median against a mean's


class Steps:
    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._began: dict[int, dict[int, float]] = {}  # step -> rank -> first arrival
        self._by_heartbeat: list[tuple[float, int] | None] = [None] * ranks
        self._table = np.empty((2, 256))  # of finished steps: when each ended, how long it took
        self._count = 0
        self._records = False
        self.first_s: float | None = None

    def observe(self, observation: Observation) -> None:
        rank, values = observation.rank, observation.values
        if rank is None or not 0 <= rank < self._ranks:
            return
        if isinstance(values, Collective):
            step = values.seq if values.step is None else values.step
            self._records = True
            self._begin(step, rank, values.arrived_s)
        elif isinstance(values, Heartbeat) and not self._records:
            self._beat(rank, observation.at_s, values.step)

    def last_s(self) -> float | None:
        return float(self._table[0, self._count - 1]) if self._count else None

    def between(self, from_s: float, to_s: float) -> Floats:
        ends_s, takes_s = self._table[:, : self._count]
        return np.asarray(takes_s[(ends_s > from_s) & (ends_s <= to_s)])

    def recent(self, from_s: float, to_s: float, least: int) -> Floats:
        found = self.between(from_s, to_s)
        if found.size >= least:
            return found
        return self.between(-np.inf, to_s)[-least:]

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
        if self.first_s is None:
            self.first_s = at_s
        if self._count == self._table.shape[1]:
            self._thin_out()
        self._table[:, self._count] = at_s, took_s
        self._count += 1

    def _thin_out(self) -> None:
        """Double the table, or drop the older half at the largest size."""
        kept = self._table if self._count < MAX_STEPS else self._table[:, self._count // 2 :]
        self._count = kept.shape[1]
        self._table = np.hstack([kept, np.empty_like(kept)])


@dataclass(frozen=True, slots=True)
class Harm:
    """Median step time against its baseline, in logs, and its standard error."""

    log_ratio: float
    error: float

    @property
    def ratio(self) -> float:
        return float(np.exp(self.log_ratio))

    @property
    def chance(self) -> float:
        """Return the chance that noise alone makes steps so much longer."""
        return 0.5 * erfc(self.log_ratio / self.error / sqrt(2.0))

    def without(self, share: float) -> "Harm":
        """Return the harm without the share of the step that others cause."""
        return replace(self, log_ratio=self.log_ratio + float(np.log(max(1e-3, 1.0 - share))))


NO_HARM: Final = Harm(0.0, 1.0)


def harm(now_s: Floats, usual_s: Floats) -> Harm:
    if now_s.size < 3 or usual_s.size < 10:
        return NO_HARM
    logs, usual = np.log(now_s), np.log(usual_s[:: max(1, usual_s.size // INFORMATIVE)])
    spread = 1.4826 * float(np.median(np.abs(usual - np.median(usual))))
    error = MEDIAN_LOSS * max(spread, 0.02) * float(np.sqrt(1 / now_s.size + 1 / usual_s.size))
    return Harm(float(np.median(logs) - np.median(usual)), error)
