"""Medians over a kind of traffic in one window, compiled: level, scatter, change.  See `history`."""

import numpy as np
from numba import boolean, float32, float64, int64, void
from numpy.typing import NDArray

from fleet.numba_cache import jit_entry, jit_inner

_F, _H, _B = float64[::1], float32[::1], boolean[::1]


@jit_inner
def _sift(values: NDArray[np.float64], first: int, last: int) -> tuple[int, int]:
    """Partition about the median of three: below, equal, above; return the ends of the middle part."""
    a, b, c = values[first], values[(first + last) // 2], values[last]
    pivot = max(min(a, b), min(max(a, b), c))
    i, j = first, last
    while i <= j:
        while values[i] < pivot:
            i += 1
        while values[j] > pivot:
            j -= 1
        if i <= j:
            values[i], values[j] = values[j], values[i]
            i += 1
            j -= 1
    return j, i


@jit_inner
def median(values: NDArray[np.float64], count: int) -> float:
    """Return the median of the first `count` values, which are reordered (Hoare's selection); NaN without any."""
    if not count:
        return np.nan
    middle, first, last = count // 2, 0, count - 1
    while first < last:
        below, above = _sift(values, first, last)
        if middle <= below:
            last = below
        elif middle >= above:
            first = above
        else:
            break
    if count % 2:
        return float(values[middle])
    low = values[0]
    for at in range(1, middle):
        low = max(low, values[at])
    return float(0.5 * (low + values[middle]))


@jit_entry(void(_F, _B, int64[::1], _H, _H, _H, float64, float64, _F))
def window_medians(  # noqa: PLR0917 - compiled code takes no keywords
    slowdown: NDArray[np.float64],
    foreign: NDArray[np.bool_],  # empty: none observed
    edges: NDArray[np.int64],
    mean: NDArray[np.float32],
    windows: NDArray[np.float32],
    before: NDArray[np.float32],
    noise2: float,  # 0: unknown
    spread2: float,
    out: NDArray[np.float64],
) -> None:
    """Fill (level, scatter beside the peers, change since the window before, scatter beside the usual), as medians
    without units; NaN: unknown.
    """
    observed, buffers = np.empty(edges.size, np.int64), np.empty(edges.size)
    count = 0
    for edge in edges:
        if np.isfinite(slowdown[edge]) and not (foreign.size and foreign[edge]):
            observed[count] = edge
            buffers[count] = slowdown[edge] - mean[edge]
            count += 1
    out[:] = np.nan
    out[0] = median(buffers, count)
    for at in range(count):
        buffers[at] = abs(slowdown[observed[at]] - out[0])
    out[1] = median(buffers, count)
    if noise2 <= 0.0:
        return
    moved = 0
    for at in range(count):
        step = abs(slowdown[observed[at]] - out[0] - before[observed[at]])
        if np.isfinite(step):
            buffers[moved] = step
            moved += 1
    out[2] = median(buffers, moved)
    for at in range(count):
        edge = observed[at]
        scale = np.sqrt(noise2 + 1.0 / (1.0 / spread2 + windows[edge] / noise2))
        buffers[at] = abs(slowdown[edge] - out[0] - mean[edge]) / scale
    out[3] = median(buffers, count)
