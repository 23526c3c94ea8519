"""Replica counts and pairing together, layer by layer: the least ceiling under which counts are found.

Bisection between what greedy counts reach and what is proven out of reach.  A ceiling counts as out of reach when a
short run of the certificate says so, or when the search for counts gives up.
"""

import numpy as np

from placement.arrays import Floats, Ints
from placement.bounds.counts import greedy_counts
from placement.bounds.hall_condition import TwoSlotCase
from placement.joint.pairing import paired

TOLERANCE = 5e-4  # of the even load
PROOF_STEPS = 60


def best_pairs(weights: Floats, *, slots: int, gpus: int, proven: Floats, steps: int) -> tuple[Ints, Floats]:
    """[layers, GPUs, 2], those of one slot first, and each layer's peak, infinite if unlawful; even load = 1."""
    most, singles = min(gpus, slots - weights.shape[1] + 1), 2 * gpus - slots
    counts = greedy_counts(weights, slots=slots, most=most)
    case = [TwoSlotCase(layer, slots, singles, most) for layer in weights]
    found = [_narrowed(*layer, steps) for layer in zip(case, counts, proven.tolist(), strict=True)]
    return np.array([pairs for pairs, _ in found]), np.array([peak for _, peak in found])


def _narrowed(case: TwoSlotCase, counts: Ints, low: float, steps: int) -> tuple[Ints, float]:
    """The pairs of the best counts found, and their fullest GPU."""
    from placement.bounds.two_slot import is_infeasible  # noqa: PLC0415 - compiled code
    from placement.joint.count_search import counts_under  # noqa: PLC0415 - likewise

    pairs, high = paired(case.weights, counts, singles=case.singles)
    while high - low > TOLERANCE:
        ceiling, trial = (low + min(high, 2 * low + 1)) / 2, counts.copy()
        reached, kept = np.inf, pairs
        if not is_infeasible(case, ceiling, PROOF_STEPS) and counts_under(case, ceiling, trial, steps):
            kept, reached = paired(case.weights, trial, singles=case.singles)
        if reached < high:
            counts, pairs, high = trial, kept, reached
        if reached > ceiling:
            low = ceiling
    return pairs, high
