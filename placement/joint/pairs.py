"""Replica counts and pairing together, layer by layer: the least ceiling under which counts are found.

Bisection between what greedy counts reach and what is proven out of reach.  A ceiling counts as out of reach when a
short run of the certificate says so, or when the search for counts gives up.
"""

import numpy as np
from numba import float64, int64

from fleet.compiled import entry, part
from placement.arrays import Floats, Ints
from placement.bounds.pairs import out_of_reach
from placement.bounds.rows import Twos, greedy_counts
from placement.joint.pairing import paired
from placement.joint.recount import counts_under

TOLERANCE = 5e-4  # of the even load
PROOF_STEPS = 60


@part
def _narrowed(twos: Twos, low: float, counts: Ints, pairs: Ints, steps: int) -> float:
    """The fullest GPU of the best counts found, which replace those given."""
    high = paired(twos, counts, pairs)
    trial, kept = counts.copy(), pairs.copy()
    while high - low > TOLERANCE:
        ceiling = (low + min(high, 2 * low + 1)) / 2
        trial[:] = counts
        reached = np.inf
        if not out_of_reach(twos, ceiling, PROOF_STEPS) and counts_under(twos, ceiling, trial, steps):
            reached = paired(twos, trial, kept)
        if reached < high:
            high = reached
            counts[:], pairs[:] = trial, kept
        if reached > ceiling:
            low = ceiling
    return high


@entry(float64[::1](float64[:, ::1], int64, float64[::1], int64, int64[:, :, ::1]))
def fill_pairs(weights: Floats, slots: int, proven: Floats, steps: int, pairs: Ints) -> Floats:
    """Fill `pairs` [layers, GPUs, 2], those of one slot (-1 beside) first; each layer's peak, infinite if unlawful.

    Weights are in units of the even load.
    """
    layers, experts = weights.shape
    peaks = np.empty(layers)
    gpus = pairs.shape[1]
    most = min(gpus, slots - experts + 1)
    for layer in range(layers):
        twos = Twos(weights[layer], slots, 2 * gpus - slots, most)
        peaks[layer] = _narrowed(twos, proven[layer], greedy_counts(twos), pairs[layer], steps)
    return peaks
