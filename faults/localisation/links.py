"""Evidence for single links: what one pair of NICs, one way, says beyond all that is explained elsewhere.

Per window and pair, the likelihood ratio of a slow link against a healthy one, averaged over slowdowns of 1.1 to 6
times before the logarithm is taken.  It has mean at most 1 when nothing is wrong, so its running product, never let
below 1, passes e^c at most once in e^c windows on average (e-detectors: Shin, Ramdas and Rinaldo 2022).
"""

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats, Ints

SLOWDOWNS = np.log([1.12, 1.2, 1.3, 1.45, 1.7, 2.2, 3.2, 6.0])
LOOK = 1.5  # scales: below, a pair without evidence need not be worked out
MOST = 200.0  # nats


def gather(  # noqa: PLR0917 - arrays of one window
    evidence: Floats,
    pair: Ints,
    leftover: Floats,
    scale: Floats,
    tail: Floats,
    fresh: Floats,
    feels: Floats,
    explained: NDArray[np.bool_],
) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """(evidence per pair, pairs that this window speaks against, their slowdown)."""
    heard = np.isfinite(leftover) & ~explained
    looked = np.zeros(evidence.size, bool)
    looked[pair[heard & (leftover > LOOK * scale)]] = True
    looked |= evidence > 0.0
    edges = np.flatnonzero(looked[pair] & heard)
    spot, size = _compact(pair[edges], evidence.size)
    left, width, feel, nu = leftover[edges], scale[edges], feels[edges], tail[edges]
    gap = left[:, None] - feel[:, None] * SLOWDOWNS
    half = 0.5 * (nu + 1.0)
    null = half * np.log1p((left / width) ** 2 / nu)
    gain = null[:, None] - half[:, None] * np.log1p((gap / width[:, None]) ** 2 / nu[:, None])
    total = np.stack([np.bincount(spot, gain[:, i], minlength=size) for i in range(SLOWDOWNS.size)])
    top = total.max(axis=0)
    nats = top + np.log(np.exp(total - top).mean(axis=0))
    new = np.zeros(evidence.size)
    ids = np.flatnonzero(_present(pair[edges], evidence.size))
    known = evidence[ids]
    count = np.maximum(np.bincount(spot, minlength=size), 1)
    share = np.where(known > 0.0, np.bincount(spot, fresh[edges], minlength=size) / count, 1.0)
    new[ids] = np.clip(np.maximum(known + np.where(nats > 0.0, share, 1.0) * nats, nats), 0.0, MOST)
    speaks = np.zeros(evidence.size, bool)
    speaks[ids] = nats > 1.0
    slow = np.zeros(evidence.size)
    slow[ids] = SLOWDOWNS[total.argmax(axis=0)]
    return new, speaks, slow


def _present(pair: Ints, pairs: int) -> NDArray[np.bool_]:
    there = np.zeros(pairs, bool)
    there[pair] = True
    return there


def _compact(pair: Ints, pairs: int) -> tuple[Ints, int]:
    """Each pair's place among those present."""
    there = _present(pair, pairs)
    place = np.cumsum(there) - 1
    return place[pair], int(there.sum())
