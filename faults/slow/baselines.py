"""Baselines of each pair: its own history, and its peers, which are the pairs that carry as many bytes.

In a bulk-synchronous job all pairs of one role carry the same bytes per step, however slow one of them is, so gaps in
log bytes separate the classes.  Symbols: docs/explanation/faults/slow.md, "From counters to a window"
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats, Ints
from faults.slow.sampling import Sample

NORMAL: Final = 1.4826
CLASS_GAP: Final = np.log(1.5)
MIN_PEERS: Final = 3
MIN_TO_SCATTER: Final = 6
INFORMATIVE: Final = 2.0
NO_CLASS: Final = -1
# Measured on healthy TCP pairs at windows of 2.5 s (November 2026): 0.06 of pairs always busy.
MIN_SIGMA: Final = 0.05
# The same on two libraries: 0.066 and 0.074 of long flows, 0.22 and 0.30 of short messages.
LONG_SIGMA: Final = 0.07
SHORT_SIGMA: Final = 0.26
PRIOR_WINDOWS: Final = 10.0
MAX_PAIRS: Final = 8.0  # of a class whose noise is independent
MIN_SPREAD: Final = 0.05
# Between healthy pairs of one class, measured likewise: 0.03 at 0.3 busy; 0.22 where each carries a short message per
# step, in a varying order.  Twice the one, slightly more than the other.
LONG_SPREAD: Final = 0.1
SHORT_SPREAD: Final = 0.25
LONG_SHARE: Final = 0.3
PEER_SIGMA: Final = 0.1  # of one window, without a history
# A class with so little of the fastest class's bandwidth waits for acknowledgements, not for the network: delayed
# acknowledgements (40 ms) keep a single short message busy long after its arrival.
WIRE_SHARE: Final = 0.15


@dataclass(frozen=True, slots=True)
class Usual:
    """A baseline with its noise, per pair; NaN without a baseline."""

    log_mbit: Floats
    sigma: Floats


def classes(total_bytes: Floats) -> Ints:
    """Return the class of each pair, from bytes carried so far; NO_CLASS if too few pairs carry as much."""
    found = np.full(total_bytes.shape, NO_CLASS, dtype=np.int64)
    known = np.flatnonzero(np.isfinite(total_bytes) & (total_bytes > 0))
    if known.size == 0:
        return found
    logs = np.log(total_bytes.flat[known])
    order = np.argsort(logs, kind="stable")
    group = np.concatenate([[0], np.cumsum(np.diff(logs[order]) > CLASS_GAP)])
    for number in range(int(group[-1]) + 1):
        members = known[order[group == number]]
        if members.size >= MIN_PEERS:
            found.flat[members] = number
    return found


def is_long(busy_share: Floats) -> bool:
    """Return whether the pairs of a class carry long flows; the slowest of them is busy the longest."""
    return float(busy_share.max(initial=0.0)) >= LONG_SHARE


def common(slowdown: Floats, kind: Ints) -> Floats:
    """Return the slowdown that all pairs of a class share now, per pair: the host or the workload, not one edge.

    The lower median, at least 0: of four pairs, two may belong to one faulty NIC, and a speed-up of all pairs, which
    now wait for one edge, is no evidence against the others.
    """
    shared = np.zeros(slowdown.shape)
    for number in np.unique(kind[kind != NO_CLASS]):
        inside = kind == number
        known = np.sort(slowdown[inside & np.isfinite(slowdown)])
        if known.size:
            shared[inside] = max(0.0, float(known[(known.size - 1) // 2]))
    return shared


def current_noise(slowdown: Floats, change: Floats, sigma: Floats, kind: Ints) -> Floats:
    """Return the noise, at least the current noise: a loaded host makes all pairs uneven.

    The current noise shows in the scatter within a class, and in the change of each pair between the halves of the
    window (whose difference has twice the noise of the whole).  A fault raises the first, but the second only at its
    onset, so the smaller of both counts.  In a class so small that one faulty NIC holds half of it neither counts.
    """
    wider = sigma.copy()
    for number in np.unique(kind[kind != NO_CLASS]):
        inside = kind == number
        scatters = [NORMAL * _median(np.abs(x - _median(x))) for x in (slowdown[inside], change[inside] / 2.0)]
        if np.count_nonzero(np.isfinite(slowdown[inside])) >= MIN_TO_SCATTER and np.isfinite(scatters).all():
            wider[inside] = np.maximum(sigma[inside], min(scatters))
    return wider


def row_noise_factor(kind: Ints, busy_share: Floats) -> Floats:
    """Return the weight of a pair's noise: short messages of one node are slow together.

    Their common process holds up all of them: m of them have the information of `INFORMATIVE`.
    """
    factor = np.ones(kind.shape)
    for number in np.unique(kind[kind != NO_CLASS]):
        inside = kind == number
        if not is_long(busy_share[inside]):
            per_row = np.count_nonzero(inside) / len(kind)
            factor[inside] = np.sqrt(max(1.0, per_row / INFORMATIVE))
    return factor


def on_the_wire(log_mbit: Floats, kind: Ints) -> NDArray[np.bool_]:
    """Return the pairs whose busy time the network explains."""
    medians = {number: _median(log_mbit[kind == number]) for number in np.unique(kind) if number != NO_CLASS}
    fastest = max((m for m in medians.values() if np.isfinite(m)), default=np.nan)
    wired = [number for number, m in medians.items() if m >= fastest + np.log(WIRE_SHARE)]
    return np.isin(kind, wired)


class History:
    """Past windows; a window counts once it is older than any suspicion that could include it.

    Suspected pairs are left out of the medians, so that a fault never becomes usual, and stay in the noise, so that
    selection by chance does not make the noise small.
    """

    def __init__(self, nodes: int, most: int, baseline_age: int, overlap: float) -> None:
        self._waiting: deque[tuple[Floats, Floats]] = deque()
        self._all, self._calm = Sample(nodes * nodes, most), Sample(nodes * nodes, most)
        self._nodes, self._most, self._baseline_age, self._overlap = nodes, most, baseline_age, overlap
        self._known: tuple[int, Floats, Floats] | None = None

    def __len__(self) -> int:
        return min(self._calm.total, self._most)

    def add(self, log_mbit: Floats, *, suspects: NDArray[np.bool_], suspected: bool) -> None:
        if suspected:
            self._waiting.clear()
            return
        self._waiting.append((log_mbit, np.where(suspects, np.nan, log_mbit)))
        if len(self._waiting) > self._baseline_age:
            whole, calm = self._waiting.popleft()
            self._all.take(whole.ravel())
            self._calm.take(calm.ravel())

    def usual(self, kind: Ints, busy_share: Floats) -> Usual:
        """Return the own baseline: per pair its median, per class the noise of a new window around it.

        The scatter of m independent windows around their mean is too small by sqrt((m-1)/m), and the mean is uncertain
        by 1/sqrt(m): together sqrt((m+1)/(m-1)).  The prior noise has the weight of `PRIOR_WINDOWS`, because a few
        overlapping windows scatter too little.
        """
        middle, spread = self._medians()
        independent = 1.0 + len(self) / self._overlap
        young = float(np.sqrt((independent + 1.0) / max(independent - 1.0, 0.1)))
        sigma = np.full(middle.shape, np.nan)
        for number in np.unique(kind[kind != NO_CLASS]):
            inside = kind == number
            prior = LONG_SIGMA if is_long(busy_share[inside]) else SHORT_SIGMA
            scatter = young * _median(spread[inside])
            reported = (independent - 1.0) * min(MAX_PAIRS, float(np.count_nonzero(inside)))
            mixed = (PRIOR_WINDOWS * prior**2 + reported * scatter**2) / (PRIOR_WINDOWS + reported)
            sigma[inside] = max(MIN_SIGMA, float(np.sqrt(mixed)))
        return Usual(middle, sigma)

    def _medians(self) -> tuple[Floats, Floats]:
        """Return the medians of the pairs that were ever observed, recomputed when the data has grown by a tenth."""
        total = self._calm.total
        if self._known is None or total > self._known[0] + 0.1 * min(total, self._most):
            logs, calm = self._all.rows, self._calm.rows
            observed = np.flatnonzero(np.isfinite(logs).any(axis=0))
            logs, middle = logs[:, observed], _columns(calm[:, observed])
            residuals = logs - middle
            usual, spread = np.full((2, self._nodes * self._nodes), np.nan)
            usual[observed] = middle
            spread[observed] = NORMAL * _columns(np.abs(residuals - _columns(residuals.T)[:, None]))
            shape = (self._nodes, self._nodes)
            self._known = (total, usual.reshape(shape), spread.reshape(shape))
        return self._known[1], self._known[2]


def peers(log_mbit: Floats, kind: Ints, busy_share: Floats) -> Usual:
    """Return the class's current median as the baseline of each pair.

    The spread of healthy peers is bounded by a prior: one slow edge makes the others of a ring uneven too.
    """
    middle = np.full(log_mbit.shape, np.nan)
    noise = np.full(log_mbit.shape, np.nan)
    for number in np.unique(kind[kind != NO_CLASS]):
        inside = (kind == number) & np.isfinite(log_mbit)
        if np.count_nonzero(inside) < MIN_PEERS:
            continue
        middle[inside] = _median(log_mbit[inside])
        spread = NORMAL * _median(np.abs(log_mbit[inside] - middle[inside]))
        most = LONG_SPREAD if is_long(busy_share[inside]) else SHORT_SPREAD
        noise[inside] = np.hypot(PEER_SIGMA, min(most, max(MIN_SPREAD, spread)))
    return Usual(middle, noise)


def _columns(logs: Floats) -> Floats:
    """Return the nanmedian over windows, NaN (and no warning) for a pair that was never observed."""
    if not logs.size:
        return np.full(logs.shape[1], np.nan)
    never = ~np.isfinite(logs).any(axis=0)
    filled = np.where(never, 0.0, logs)
    middle: Floats = np.nanmedian(filled, axis=0)
    middle[never] = np.nan
    return middle


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else float("nan")
