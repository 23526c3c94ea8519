"""Compute gap: the time a rank spends between operations, against its peers in the same step.

Page's CUSUM (Biometrika 41, 1954) of z = (e - b) / sigma, with e the gap without the median over ranks, b the rank's
own median of e, and sigma the pooled MAD of history.  History is an evenly spread sample of the last steps, so its
medians cost the same after a day as after a minute.  docs/explanation/faults/slow.md, "Slow ranks"
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from faults.fabric import Floats
from faults.observations import Collective, Observation, PointToPoint
from faults.slow.sampling import Sample
from faults.slow.settings import SlowSettings

HORIZON_STEPS: Final = 4000  # that make a baseline
KEPT_STEPS: Final = 96  # steps with stored gaps
MIN_STEPS: Final = 20  # before an own baseline is used
MIN_APART: Final = 12  # steps; one of eight equal ranks is last in eleven of them with a chance of 1e-9
RECENT: Final = 8
FLOOR_S: Final = 0.0005  # a clock and a thread switch
NORMAL: Final = 1.4826  # MAD of a normal distribution to its standard deviation
LAST: Final = 0.9  # share of all steps in which a rank arrives last


@dataclass
class _Step:
    gap_s: dict[int, float] = field(default_factory=dict)
    ended_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Late:
    rank: int
    since_s: float
    extra_s: float  # of compute in a step, beyond its usual place among its peers
    harm: float  # share of the step that all others lose
    from_start: bool  # it differs from its peers since the start


class ComputeGaps:
    """A bank of CUSUMs, one per rank, updated once per finished step."""

    def __init__(self, ranks: int, settings: SlowSettings) -> None:
        self._settings = settings
        self._ranks = ranks
        self._finished: list[float | None] = [None] * ranks
        self._steps: dict[int, _Step] = {}
        self._recent: deque[Floats] = deque(maxlen=RECENT)  # e, per finished step
        self._gaps: deque[Floats] = deque(maxlen=KEPT_STEPS)
        self._all = Sample(ranks, HORIZON_STEPS)  # e of all steps
        self._calm = Sample(ranks, HORIZON_STEPS)  # e without a suspicion
        self._was_last = np.zeros(ranks, dtype=np.int64)  # steps
        self._baseline: tuple[int, Floats, Floats] | None = None  # at how many steps, b, sigma
        self.sums = np.zeros(ranks)
        self.since_s = np.full(ranks, np.nan)
        self._first_s: float | None = None  # end of the first step
        self._from_s: float | None = None  # of the first one that counts

    def observe(self, observation: Observation) -> None:
        rank, values = observation.rank, observation.values
        if rank is None or not 0 <= rank < self._ranks:
            return
        if isinstance(values, Collective) and values.finished_s is not None:
            step = values.seq if values.step is None else values.step
            self._operation(rank, step, values.arrived_s, values.finished_s)
        elif isinstance(values, PointToPoint) and values.step is not None:
            self._operation(rank, values.step, values.called_s, max(values.received_s, values.sent_s))

    def late(self, step_s: float) -> list[Late]:
        if len(self._recent) < RECENT or step_s <= 0 or self._ranks < 2:
            return []
        recent = np.array(self._recent)
        share = np.maximum(0.0, np.median(_before_all(recent), axis=0)) / step_s
        worst = np.flatnonzero(share >= self._settings.compute_harm)
        found = [self._late(int(rank), float(np.median(recent[:, rank])), float(share[rank])) for rank in worst]
        return [late for late in found if late is not None]

    def gaps_s(self, steps: int) -> Floats:
        return np.array(list(self._gaps)[-steps:]).reshape(-1, self._ranks)

    def _operation(self, rank: int, step: int, arrived_s: float, finished_s: float) -> None:
        before, self._finished[rank] = self._finished[rank], finished_s
        if before is None or arrived_s < before:
            return
        entry = self._steps.setdefault(step, _Step())
        entry.gap_s[rank] = entry.gap_s.get(rank, 0.0) + arrived_s - before
        entry.ended_s = max(entry.ended_s, finished_s)
        for old in sorted(s for s in self._steps if s < step - 1):
            self._close(self._steps.pop(old))

    def _close(self, step: _Step) -> None:
        if len(step.gap_s) < self._ranks:
            return
        if self._first_s is None:
            self._first_s = step.ended_s
        if step.ended_s < self._first_s + self._settings.warm_up_s:
            return  # the first steps compile, allocate and connect
        if self._from_s is None:
            self._from_s = step.ended_s
        gaps = np.array([step.gap_s[rank] for rank in range(self._ranks)])
        extra = gaps - np.median(gaps)
        self._recent.append(extra)
        self._gaps.append(gaps)
        self._all.take(extra)
        self._was_last[int(extra.argmax())] += 1
        self._accumulate(extra, step.ended_s)

    def _accumulate(self, extra: Floats, at_s: float) -> None:
        s = self._settings
        if self._calm.total >= MIN_STEPS:
            usual, sigma = self._usual()
            z = np.clip((extra - usual) / sigma, -s.gap_winsor_sigma, s.gap_winsor_sigma)
            before = self.sums
            self.sums = np.clip(before + z - s.gap_slack_sigma, 0.0, 4 * s.gap_limit_sigma)
            self.since_s = np.where(self.sums <= 0, np.nan, np.where(before <= 0, at_s, self.since_s))
        if (self.sums < s.gap_limit_sigma / 2).all():  # unchanged during a suspicion
            self._calm.take(extra)

    def _usual(self) -> tuple[Floats, Floats]:
        """Return b and sigma, recomputed with every twentieth step more."""
        total = self._calm.total
        if self._baseline is None or total > 1.05 * self._baseline[0]:
            history = self._calm.rows
            usual = np.median(history, axis=0)
            own = NORMAL * np.median(np.abs(history - usual), axis=0)
            self._baseline = (total, usual, np.maximum(np.maximum(own, float(np.median(own))), FLOOR_S))
        return self._baseline[1], self._baseline[2]

    def _late(self, rank: int, now_s: float, share: float) -> Late | None:
        if self.sums[rank] > self._settings.gap_limit_sigma:
            usual, _ = self._usual()
            return Late(rank, float(self.since_s[rank]), now_s - float(usual[rank]), share, from_start=False)
        return self._apart(rank, now_s, share)

    def _apart(self, rank: int, extra_s: float, share: float) -> Late | None:
        """Return a rank that was last in nearly every step since the first, without a change."""
        if self._from_s is None or self._all.total < MIN_APART or self._was_last[rank] < LAST * self._all.total:
            return None
        history = self._all.rows
        spread = NORMAL * float(np.median(np.abs(history - np.median(history, axis=0))))
        if extra_s < self._settings.gap_winsor_sigma * max(spread, FLOOR_S):
            return None
        return Late(rank, self._from_s, extra_s, share, from_start=True)


def _before_all(extra: Floats) -> Floats:
    """By how much each rank came after the last of the others, per step: the job's gain without it."""
    steps, last = np.arange(len(extra)), extra.argmax(axis=1)
    most = extra[steps, last]
    rest = extra.copy()
    rest[steps, last] = -np.inf
    second = rest.max(axis=1)
    waits: Floats = extra - most[:, None]
    waits[steps, last] = most - second
    return waits
