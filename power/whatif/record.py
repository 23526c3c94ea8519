"""The record of a what-if run for plots: every reading, every change of clocks and every brake."""

from dataclasses import dataclass

import numpy as np

from power.arrays import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """Readings of the meter, one per step, and the clocks in force with their times."""

    step_s: float
    budget_w: float
    row_w: Floats  # [readings]
    uncapped_w: Floats  # the same of the uncapped row
    changed_s: Floats  # [changes], rising; the first is 0
    clocks: Floats  # [changes, controls], in the order of `power.controls.Clocks`
    brakes_s: Floats  # when each brake was engaged
    fault_s: tuple[float, float] | None = None  # from when to when something was wrong

    @property
    def duration_s(self) -> float:
        return self.step_s * len(self.row_w)


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """Readings in equal buckets: the lowest, the mean and the highest of each."""

    at_s: Floats  # the middle of each
    step_s: float
    low_w: Floats
    mean_w: Floats
    high_w: Floats


def envelope(row_w: Floats, *, step_s: float, max_points: int) -> Envelope:
    """Return the envelope in at most so many buckets; the last may be shorter."""
    per = max(1, -(-len(row_w) // max_points))
    starts = np.arange(0, len(row_w), per)
    sizes = np.diff(np.append(starts, len(row_w)))
    return Envelope(
        at_s=(starts + sizes / 2) * step_s,
        step_s=per * step_s,
        low_w=np.minimum.reduceat(row_w, starts),
        mean_w=np.add.reduceat(row_w, starts) / sizes,
        high_w=np.maximum.reduceat(row_w, starts),
    )
