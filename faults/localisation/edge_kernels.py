"""The compiled passes over all edges of a window: the comparison with history, all entities' sums, and learning.

A job of 16,384 ranks has 110,000 edges with ten entities each, so these passes determine the cost of a quiet window.
docs/explanation/faults/localisation.md
"""

import numpy as np
from numba import boolean, float32, float64, int8, int32, int64, types, void
from numpy.typing import NDArray

from faults.localisation.history import Measures, Usual
from faults.localisation.kernel import WINDOW_ARRAYS
from faults.localisation.sums import READ, WAYS, gathered, per_entity
from faults.localisation.window_arrays import Read, Ways, WindowArrays
from fleet.numba_cache import jit_entry, jit_inner

_F, _H, _I, _B = float64[::1], float32[::1], int32[::1], boolean[::1]
_MEASURES = types.NamedTuple([_F, _F, _F, _F, float64, float64, float64], Measures)  # type: ignore[no-untyped-call]
_USUAL = types.NamedUniTuple(_H, 4, Usual)  # type: ignore[no-untyped-call]
NU = 4.0
NEVER_ODD = 1e9
OUTLYING = 2.0  # scales: below, an edge is no outlier, and its link is not scored
OUTLIER_SCALES = 2.5  # scales
SLAB = 0.3  # mean log slowdown of an outlier
PEAK_T4 = 0.375  # density of t4 at 0
MIN_COST = 0.5  # nats: every reason costs something
HELD = 6.0  # memory, in windows, of the mean of held-back values
WINSOR = 2.0
UNOBSERVED = 1e-6  # squared shares: rounding
FAR = 4.5  # scales, above which a young history learns nothing: no edge differs so much from its peers by chance


@jit_inner
def _odd(residual: float, scale: float, price: float) -> float:
    if residual <= OUTLIER_SCALES * scale:
        return NEVER_ODD
    slab = np.log(max(PEAK_T4 * SLAB / scale, 1.0)) + min(max(residual / SLAB, 0.0), 2.0)
    cost: float = max(MIN_COST, price) + slab
    return cost


@jit_inner
def _mark_outliers(  # noqa: PLR0917 - compiled code takes no keywords
    pair: NDArray[np.int32],
    link_nats: NDArray[np.float64],
    of: Measures,
    arrays: WindowArrays,
    feels: NDArray[np.float64],
    read: Read,
) -> None:
    """Compute the clipped scores to be summed, and the outlier cost of outlying edges."""
    observed, outlying = 0, 0
    for edge in range(feels.size):
        residual, scale = arrays.residual[edge], arrays.scale[edge]
        read.amount[edge], arrays.odd[edge] = 0.0, NEVER_ODD
        if residual != residual:  # noqa: PLR0124 - NaN
            continue
        observed += 1
        read.amount[edge] = feels[edge] * min(of.clip, max(-of.clip, residual / scale))
        if residual > OUTLYING * scale:
            read.outlying[outlying] = edge
            outlying += 1
            arrays.odd[edge] = _odd(residual, scale, of.odd_price - link_nats[pair[edge]])
    read.counts[0], read.counts[1] = observed, outlying


@jit_inner
def _score(arrays: WindowArrays, ways: Ways, feels: NDArray[np.float64], full: NDArray[np.float64], read: Read) -> None:
    gathered(ways, read.amount, read.sums)
    per_entity(ways, read.sums, ways.leak, read.score)
    read.norm[:] = 0.0
    if read.counts[0] < feels.size:
        for edge in range(feels.size):
            residual = arrays.residual[edge]
            read.amount[edge] = 0.0 if residual == residual else feels[edge] ** 2  # noqa: PLR0124 - NaN
        gathered(ways, read.amount, read.sums)
        per_entity(ways, read.sums, ways.leak * ways.leak, read.norm)
    for k in range(full.size):
        norm = full[k] - read.norm[k]
        read.observed[k] = norm > UNOBSERVED
        read.score[k] = read.score[k] / np.sqrt(norm) if norm > UNOBSERVED else 0.0


@jit_entry(void(_F, _B, int8[::1], _I, _F, _MEASURES, _USUAL, WINDOW_ARRAYS, WAYS, _F, _F, READ))
def measure(  # noqa: PLR0917 - compiled code takes no keywords
    slowdown: NDArray[np.float64],
    foreign: NDArray[np.bool_],  # empty: none observed
    traffic: NDArray[np.int8],
    pair: NDArray[np.int32],
    link_nats: NDArray[np.float64],  # per pair
    of: Measures,
    usual: Usual,
    arrays: WindowArrays,  # residual, scale, tail and odd are filled
    ways: Ways,
    feels: NDArray[np.float64],  # per edge
    full: NDArray[np.float64],  # per entity: sum of its edges' squared shares
    read: Read,  # is filled
) -> None:
    marked = foreign.size > 0
    flat = 1.0 / of.spread_tail
    apart, per_window = 1.0 / of.spread2, 1.0 / of.noise2
    for edge in range(slowdown.size):
        kind = traffic[edge]
        value = slowdown[edge] - of.level[kind]
        if marked and foreign[edge]:
            value = np.nan
        held = usual.held[edge]
        unknown = 1.0 / (apart[kind] + usual.windows[edge] * per_window[kind])
        noise = of.noise2[kind] * of.outlying[kind] / (held + 1.0)
        variance = noise + unknown
        mean = value
        if held > 0.0:
            mean = usual.held_mean[edge] + (value - usual.held_mean[edge]) / (held + 1.0)
        new = noise / variance
        read.measured[edge] = value
        arrays.residual[edge] = mean - usual.mean[edge]
        arrays.scale[edge] = np.sqrt(variance)
        arrays.tail[edge] = 1.0 / (flat + (1.0 / NU - flat) * new)
        read.fresh[edge] = 0.0 if held > 0.0 else new
    _mark_outliers(pair, link_nats, of, arrays, feels, read)
    _score(arrays, ways, feels, full, read)


@jit_entry(void(int8[::1], _MEASURES, _USUAL, WINDOW_ARRAYS, _F, int64[::1], _F, _F))
def alone(  # noqa: PLR0917 - compiled code takes no keywords
    traffic: NDArray[np.int8],
    of: Measures,
    usual: Usual,
    arrays: WindowArrays,
    measured: NDArray[np.float64],
    selected: NDArray[np.int64],
    x: NDArray[np.float64],  # per `who`
    nats: NDArray[np.float64],
) -> None:
    """Compute the evidence of this window alone for each of `chosen`, slowed by x."""
    for m in range(selected.size):
        k = selected[m]
        total = 0.0
        for at in range(arrays.first[k], arrays.first[k + 1]):
            edge = arrays.edge[at]
            left = measured[edge] - usual.mean[edge]
            if left != left:  # noqa: PLR0124 - NaN
                continue
            kind = traffic[edge]
            noise = of.noise2[kind]
            unknown = 1.0 / (1.0 / of.spread2[kind] + usual.windows[edge] / noise)
            variance = noise * of.outlying[kind] + unknown
            amount = arrays.share[at] * x[m]
            soft2 = (arrays.misfit[k] * amount) ** 2
            total += 2.5 * np.log(
                (1.0 + left * left / (NU * variance)) / (1.0 + (left - amount) ** 2 / (NU * (variance + soft2)))
            ) - 0.5 * np.log(1.0 + soft2 / variance)
        nats[m] = total * arrays.weight[k]


@jit_entry(void(int8[::1], _F, _F, float64, float64, WINDOW_ARRAYS, _F, _B, _USUAL, _H, _USUAL, _H))
def learn(  # noqa: PLR0917 - compiled code takes no keywords
    traffic: NDArray[np.int8],
    ratio: NDArray[np.float64],  # per kind: noise over spread, squared
    worth: NDArray[np.float64],  # per kind: weight of this window, less if it scatters widely
    warm: float,
    memory: float,
    arrays: WindowArrays,
    measured: NDArray[np.float64],
    doubtful: NDArray[np.bool_],
    old: Usual,
    before: NDArray[np.float32],
    new: Usual,
    after: NDArray[np.float32],
) -> None:
    """Update the baseline of unexplained edges by a limited step; hold back the values of a suspected young edge."""
    for edge in range(measured.size):
        windows, held = old.windows[edge], old.held[edge]
        new.mean[edge], new.windows[edge] = old.mean[edge], windows
        new.held[edge], new.held_mean[edge], after[edge] = held, old.held_mean[edge], before[edge]
        residual = arrays.residual[edge]
        if residual != residual:  # noqa: PLR0124 - NaN
            continue
        after[edge] = np.float32(measured[edge])
        z = residual / arrays.scale[edge]
        young = windows < warm
        if doubtful[edge] or (young and abs(z) > FAR):
            if young:
                new.held[edge] = np.float32(min(held + 1.0, HELD))
                new.held_mean[edge] = np.float32(residual + old.mean[edge])
                continue
        else:
            amount = worth[traffic[edge]]
            windows = np.float32(min(windows + amount, memory))
            step = min(WINSOR, max(-WINSOR, z)) * arrays.scale[edge] * amount / (windows + ratio[traffic[edge]])
            new.mean[edge] = np.float32(old.mean[edge] + step)
            new.windows[edge] = windows
        new.held[edge], new.held_mean[edge] = np.float32(0.0), np.float32(0.0)
