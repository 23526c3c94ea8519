"""Evidence for single links: the slowdown of one pair of NICs, one way, beyond all other explanations.

An edge behind a congested cable counts by its slowdown beyond the cable's; one behind a slow host does not count.
Per window and pair, the likelihood ratio of a slow link against a healthy one is averaged over slowdowns of 1.2 to 4.5
times before the logarithm.  Its mean is at most 1 without a fault, so the running product, kept above 1, passes e^c at
most once in e^c windows on average (e-detectors: Shin, Ramdas and Rinaldo 2022).

Congestion on a probe's path persists, so probes add to one suspicion at most the log odds against such congestion
beginning in a window (`probes`).  A pair with a clearly usual probe is not scored: its traffic's slowdown is on that
flow's own path.  Nor is a pair whose probes a slow host or leaf explains, whatever the fit of traffic.
"""

import numpy as np
from numba import boolean, float32, float64, int32, types, uint32, void
from numpy.typing import NDArray

from faults.localisation.entities import Elsewhere, Links, Pairs
from faults.localisation.kernel import WINDOW_ARRAYS
from faults.localisation.probes import Reading
from faults.localisation.sums import READ
from faults.localisation.window_arrays import Read, WindowArrays
from fleet.numba_cache import jit_entry, jit_inner

_F, _H, _I = float64[::1], float32[::1], int32[::1]
_LINKS = types.NamedTuple([_F, _F, uint32[::1], _F, uint32[::1]], Links)  # type: ignore[no-untyped-call]
_ONE = np.uint32(1)
MISFIT = 0.3
_READING = types.NamedUniTuple(_F, 3, Reading)  # type: ignore[no-untyped-call]
_ELSEWHERE = types.NamedUniTuple(_F, 2, Elsewhere)  # type: ignore[no-untyped-call]
_PAIRS = types.NamedTuple([_I, _I, _I, _F, float64], Pairs)  # type: ignore[no-untyped-call]
SLOWDOWNS = np.log(np.array([1.2, 1.3, 1.45, 1.75, 2.4, 4.5]))
COUNT = 6
SUPPORTS = 1.0  # nats in one window
MAX = 200.0
MIN = 0.7  # nats: smaller sums are dropped
ODD_SCALES = 6.0
PROBE_OUTLIER_SCALES = 4.0  # scales: the same for a probe, with fewer of them
CLEAR = 2.0  # scales: by so much nearer to its usual than to the smallest slowdown
PROBE_MISFIT = 0.15


@jit_inner
def _add(arrays: WindowArrays, edge: int, feels: float, cable: float, totals: NDArray[np.float64]) -> None:
    """Add the log likelihood ratios of one edge whose cable is slow by `cable` or not at all: only more counts."""
    nu = arrays.tail[edge]
    unit = 1.0 / np.sqrt(arrays.scale[edge] ** 2 + (MISFIT * cable) ** 2)
    left = (arrays.residual[edge] - cable) * unit
    half = 0.5 * (nu + 1.0)
    null = 1.0 + left * left / nu
    for i in range(COUNT):
        gap = left - max(feels * SLOWDOWNS[i] - cable, 0.0) * unit
        totals[i] += half * np.log(null / (1.0 + gap * gap / nu))


@jit_inner
def _probe(probed: Reading, pair: int, totals: NDArray[np.float64], both: NDArray[np.float64]) -> bool:
    both[:] = totals
    residual = probed.residual[pair] if probed.residual.size else np.nan
    if residual != residual:  # noqa: PLR0124 - NaN
        return False
    scale2, nu = probed.scale[pair] ** 2, probed.tail[pair]
    null = 1.0 + residual * residual / (nu * scale2)
    for i in range(COUNT):
        wide2 = scale2 + (PROBE_MISFIT * SLOWDOWNS[i]) ** 2
        gap = residual - SLOWDOWNS[i]
        both[i] += 0.5 * (nu + 1.0) * np.log(null / (1.0 + gap * gap / (nu * wide2))) - 0.5 * np.log(wide2 / scale2)
    return True


@jit_inner
def _clears(probed: Reading, pair: int) -> bool:
    if not probed.residual.size:
        return False
    as_usual: bool = probed.residual[pair] < 0.5 * SLOWDOWNS[0] - CLEAR * probed.scale[pair]
    return as_usual


@jit_inner
def _counts(arrays: WindowArrays, edge: int, elsewhere: Elsewhere) -> bool:
    residual = arrays.residual[edge]
    observed: bool = residual == residual and elsewhere.by_others[edge] <= 0.0  # noqa: PLR0124 - NaN
    return observed


@jit_inner
def _nats(totals: NDArray[np.float64]) -> tuple[float, int]:
    best = 0
    for i in range(COUNT):
        if totals[i] > totals[best]:
            best = i
    mean = 0.0
    for i in range(COUNT):
        mean += np.exp(totals[i] - totals[best])
    return totals[best] + np.log(mean / COUNT), best


@jit_inner
def _examine(  # noqa: PLR0917 - compiled code takes no keywords
    arrays: WindowArrays,
    pair: NDArray[np.int32],
    elsewhere: Elsewhere,
    read: Read,
    probed: Reading,
    examined: NDArray[np.bool_],
) -> float:
    """Mark the pairs whose edges or probes are outliers; return the share of unexplained edges."""
    examined[:] = False
    for p in range(probed.residual.size):
        examined[p] = probed.residual[p] > PROBE_OUTLIER_SCALES * probed.scale[p]
    odd_count = 0
    for edge in read.outlying[: read.counts[1]]:
        residual, scale, amount = arrays.residual[edge], arrays.scale[edge], elsewhere.by_all[edge]
        if elsewhere.by_others[edge] <= 0.0:
            examined[pair[edge]] = True
        odd_count += residual - amount > ODD_SCALES * np.sqrt(scale * scale + (MISFIT * amount) ** 2)
    return odd_count / read.counts[0] if read.counts[0] else np.nan


@jit_inner
def _pair(  # noqa: PLR0917 - compiled code takes no keywords
    arrays: WindowArrays,
    pairs: Pairs,
    p: int,
    elsewhere: Elsewhere,
    fresh: NDArray[np.float64],
    windows: NDArray[np.float32],
    warm: float,
    totals: NDArray[np.float64],
) -> tuple[int, float, bool]:
    """Fill the ratios for each slowdown; return (counting edges, their mean share of new variance, any observed)."""
    count, share, observed = 0, 0.0, False
    totals[:] = 0.0
    for at in range(pairs.first[p], pairs.first[p + 1]):
        edge = pairs.edge[at]
        observed |= not np.isnan(arrays.residual[edge])
        if _counts(arrays, edge, elsewhere):
            count += 1
            share += fresh[edge] if windows[edge] >= warm else 0.0
            _add(arrays, edge, pairs.feels[edge], elsewhere.by_all[edge], totals)
    back = pairs.back[p]
    if count and back >= 0:
        for at in range(pairs.first[back], pairs.first[back + 1]):
            edge = pairs.edge[at]
            if _counts(arrays, edge, elsewhere):
                _add(arrays, edge, pairs.leak * pairs.feels[edge], elsewhere.by_all[edge], totals)
    return count, share / max(count, 1), observed


@jit_entry(
    void(
        WINDOW_ARRAYS,
        _PAIRS,
        _I,
        _ELSEWHERE,
        READ,
        _H,
        float64,
        _READING,
        _F,
        boolean[::1],
        _F,
        _LINKS,
        float64,
        _LINKS,
        _F,
        _F,
    )
)
def gather(  # noqa: PLR0917 - compiled code takes no keywords
    arrays: WindowArrays,
    pairs: Pairs,
    pair: NDArray[np.int32],  # per edge
    elsewhere: Elsewhere,
    read: Read,
    windows: NDArray[np.float32],  # per edge: number of learnt windows
    warm: float,  # windows; a younger edge has no independent error
    probed: Reading,  # empty: no probes
    most: NDArray[np.float64],  # per pair: the most nats that its probes may add
    explained_pairs: NDArray[np.bool_],  # per pair: the fit of probes has a slow host or leaf on its path
    slow: NDArray[np.float64],  # per pair: filled with the best slowdown
    old: Links,
    from_s: float,
    new: Links,
    odd: NDArray[np.float64],  # [0]: share of unexplained edges
    traffic: NDArray[np.float64],  # per pair: filled with the evidence of traffic alone in this window; NaN: none
) -> None:
    totals, both, examined = np.empty(COUNT), np.empty(COUNT), np.empty(old.nats.size, np.bool_)
    odd[0] = _examine(arrays, pair, elsewhere, read, probed, examined)
    for p in range(old.nats.size):
        known = old.nats[p]
        new.hits[p], new.since[p], new.nats[p], slow[p] = old.hits[p] << _ONE, old.since[p], 0.0, 0.0
        new.probed[p], new.unobserved[p], traffic[p] = 0.0, old.unobserved[p] << _ONE, np.nan
        if (known <= 0.0 and not examined[p]) or _clears(probed, p):
            continue
        count, share, observed = _pair(arrays, pairs, p, elsewhere, read.fresh, windows, warm, totals)
        by_probe = _probe(probed, p, totals, both)
        if explained_pairs[p] or (
            not count and (observed or not by_probe)
        ):  # explained, or not observed: nothing is learnt
            new.nats[p], new.probed[p] = known, old.probed[p]
            if not observed:
                new.unobserved[p] |= _ONE
            continue
        nats, best = _nats(totals)
        probe_nats, more = 0.0, 0.0
        if by_probe:
            joint, best = _nats(both)
            probe_nats = joint - nats
            if count:
                traffic[p] = totals[best]
            more = min(most[p], old.probed[p] + probe_nats) - old.probed[p]
        # The error of a usual is the same each time: for a suspicion, and against a probe's support.
        part_of = share if known > 0.0 and (nats > 0.0 or probe_nats > 0.0) else 1.0
        goes_on, begins = known + part_of * nats + more, nats + min(most[p], probe_nats)
        total = min(MAX, max(goes_on, begins))
        if total > MIN:
            new.nats[p], new.probed[p] = total, min(most[p], probe_nats) if goes_on < begins else old.probed[p] + more
        slow[p] = SLOWDOWNS[best]
        if nats + probe_nats > SUPPORTS:
            new.hits[p] |= _ONE
        if known <= 0.0:
            new.since[p] = from_s
