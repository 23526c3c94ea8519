"""The cheapest replicas of one kind that a planner with the same warm-up could run if it knew the future.

A replica is paid from its start and serves `warmup` windows later; stopping takes effect at once.  Replica `k` is
needed in the windows whose demand exceeds `k - 1` replicas.  In `g` windows between two needs, keeping it costs `g`
windows and a new start costs `warmup` windows, so it stays if `g <= warmup`.  Replicas do not interact, so this choice
for each is the optimum of the whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Clairvoyant:
    serving: tuple[int, ...]  # replicas per window, warm ones
    paid: tuple[int, ...]  # likewise, with those that warm up

    @property
    def replica_windows(self) -> int:
        return sum(self.paid)


def clairvoyant(rates: Sequence[float], *, capacity: float, warmup: int) -> Clairvoyant:
    """Return the cheapest series that is never below the demand.

    `rates` and the `capacity` of a replica have one unit, `warmup` is in windows.  Replicas needed in the first windows
    have started before; only what they cost within the series counts.
    """
    if not capacity > 0:
        raise ValueError(f"capacity: {capacity:g}, expected above 0")
    if warmup < 0:
        raise ValueError(f"warmup: {warmup}, expected at least 0")
    needed = np.ceil(np.asarray(rates, dtype=np.float64) / capacity - 1e-9).astype(np.int64)
    serving, paid = np.zeros(len(needed), dtype=np.int64), np.zeros(len(needed), dtype=np.int64)
    for replica in range(1, int(needed.max(initial=0)) + 1):
        for first, last in _runs(np.flatnonzero(needed >= replica), warmup):
            serving[first : last + 1] += 1
            paid[max(0, first - warmup) : last + 1] += 1
    return Clairvoyant(tuple(serving.tolist()), tuple(paid.tolist()))


def _runs(windows: npt.NDArray[np.int64], gap: int) -> list[tuple[int, int]]:
    """Return the first and the last window of each run; needs up to `gap` windows apart are one run."""
    edges = [-1, *np.flatnonzero(np.diff(windows) > gap + 1).tolist(), len(windows) - 1]
    return [(int(windows[before + 1]), int(windows[after])) for before, after in pairwise(edges)]
