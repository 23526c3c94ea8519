"""Compute gaps of nodes and durations of steps, by windows: from records of collectives; steps also from heartbeats.

gap of a rank and step = sum over its operations of (arrival - end of the previous one);  a node's is its slowest
rank's.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from faults.detector import Job
from faults.fabric import Floats
from faults.observations import Collective, Heartbeat, Observation, PointToPoint
from faults.slow.steps import NO_HARM, harm

MAX_WINDOWS: Final = 720  # an hour of 5 s
MIN_USUAL: Final = 10  # windows, before steps have a baseline
MIN_NOW: Final = 3


class Gaps(dict[int, tuple[float, int]]):
    """One window of each rank: seconds of computing, and the number of steps."""


@dataclass(slots=True)
class Steps:
    step_s: float = 0.0
    steps: int = 0


@dataclass(slots=True)
class _Rank:
    rank: int
    finished_s: float | None = None
    gap_s: float | None = None  # of the current step; None: not from its beginning
    of_step: int | None = None
    reached: int | None = None
    reached_s: float = 0.0


class GapTracker:
    def __init__(self, job: Job) -> None:
        self._node = np.array(job.rank_node, dtype=np.int64)
        self._nodes = job.nodes
        self._ranks = [_Rank(rank) for rank in range(len(job.rank_node))]
        self._steps: deque[tuple[float, float]] = deque(maxlen=MAX_WINDOWS)  # end of a window, mean step in it

    def take(self, observation: Observation, into: Steps, gaps: Gaps) -> None:
        values, rank = observation.values, observation.rank
        if rank is None or not 0 <= rank < len(self._ranks):
            return
        of = self._ranks[rank]
        if isinstance(values, Heartbeat):
            _reach(of, values.step, observation.at_s, into)
        elif isinstance(values, Collective) and values.finished_s is not None:
            step = values.seq if values.step is None else values.step
            _reach(of, step, values.arrived_s, into)
            _operation(of, step, values.arrived_s, values.finished_s, gaps)
        elif isinstance(values, PointToPoint) and values.step is not None:
            _operation(of, values.step, values.called_s, max(values.received_s, values.sent_s), gaps)

    def gaps(self, of: Gaps) -> Floats:
        """Return the mean per node of a closed window; NaN if no step ended."""
        of_node = np.full(self._nodes, np.nan)
        if of:
            ranks = np.fromiter(of, dtype=np.int64)
            means = np.array([total_s / steps for total_s, steps in of.values()])
            np.fmax.at(of_node, self._node[ranks], means)
        return of_node

    def close(self, window: Steps, to_s: float) -> None:
        if window.steps:
            self._steps.append((to_s, window.step_s / window.steps))

    def stopped(self, window: Steps, window_s: float) -> bool:
        """Return whether no step ended in a window that usually has two: busy time then measures no bandwidth."""
        return not window.steps and bool(self._steps) and 2.0 * self.step_s() < window_s

    def step_s(self) -> float:
        return float(np.median([step_s for _, step_s in self._steps])) if self._steps else 0.0

    def chance_of_no_harm(self, since_s: float) -> float | None:
        """Return the chance that steps since then are as long as before; None without a baseline."""
        before = np.array([step_s for to_s, step_s in self._steps if to_s <= since_s])
        now = np.array([step_s for to_s, step_s in self._steps if to_s > since_s])
        if before.size < MIN_USUAL or now.size < MIN_NOW:
            return None
        measured = harm(now, before)
        return None if measured is NO_HARM else measured.chance


def _reach(of: _Rank, step: int, at_s: float, into: Steps) -> None:
    if of.reached is not None and step > of.reached and at_s > of.reached_s:
        into.step_s += at_s - of.reached_s
        into.steps += step - of.reached
    if of.reached != step:
        of.reached, of.reached_s = step, at_s


def _operation(of: _Rank, step: int, arrived_s: float, finished_s: float, into: Gaps) -> None:
    if step != of.of_step:
        if of.gap_s is not None:
            total_s, steps = into.get(of.rank, (0.0, 0))
            into[of.rank] = (total_s + of.gap_s, steps + 1)
        of.gap_s = None if of.of_step is None else 0.0
        of.of_step = step
    if of.gap_s is not None and of.finished_s is not None:
        of.gap_s += max(0.0, arrived_s - of.finished_s)  # of overlapping operations, without time to compute between
    of.finished_s = finished_s if of.finished_s is None else max(finished_s, of.finished_s)
