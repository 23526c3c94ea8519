"""Replica counts and pairing together, layer by layer: the lowest ceiling with feasible counts.

A bisection between the greedy counts and the proven bound.  A ceiling counts as infeasible when a short run of the
certificate proves it, or when the count search gives up.  For given counts the best pairing is the heaviest copies
alone, then heaviest with lightest.  Two copies of one expert can only meet in the middle.  One of them then swaps with
a copy of another GPU, where the greater load of the two GPUs is lowest.
"""

import numpy as np

from placement.arrays import Floats, Ints
from placement.bounds.hall_condition import TwoSlotCase
from placement.bounds.lower_bound import greedy_counts

TOLERANCE = 5e-4  # of the even load
PROOF_STEPS = 60
ALONE = -1  # in place of a second copy


def best_pairs(weights: Floats, *, slots: int, gpus: int, proven: Floats, steps: int) -> tuple[Ints, Floats]:
    """[layers, GPUs, 2], GPUs of one slot first, and each layer's maximum load, infinite if illegal; even load = 1."""
    most, singles = min(gpus, slots - weights.shape[1] + 1), 2 * gpus - slots
    counts = greedy_counts(weights, slots=slots, most=most)
    case = [TwoSlotCase(layer, slots, singles, most) for layer in weights]
    found = [_narrowed(*layer, steps) for layer in zip(case, counts, proven.tolist(), strict=True)]
    return np.array([pairs for pairs, _ in found]), np.array([peak for _, peak in found])


def _narrowed(case: TwoSlotCase, counts: Ints, low: float, steps: int) -> tuple[Ints, float]:
    """The pairs of the best counts, and their maximum load."""
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


def paired(weights: Floats, counts: Ints, *, singles: int) -> tuple[Ints, float]:
    """[GPUs, 2], GPUs of one slot first, of one layer; and the maximum load, infinite if illegal."""
    loads = np.append(weights / counts, 0.0)  # the last is the load of ALONE
    experts = np.repeat(np.arange(len(counts)), counts)
    falling = experts[np.argsort(-loads[experts], kind="stable")]
    first = falling[: (len(falling) + singles) // 2]
    pairs = np.column_stack([first, np.concatenate([np.full(singles, ALONE), falling[: len(first) - 1 : -1]])])
    for gpu in np.flatnonzero(pairs[:, 0] == pairs[:, 1]).tolist():
        if pairs[gpu, 0] == pairs[gpu, 1] and not _part(pairs, gpu, loads):
            return pairs, float("inf")
    return pairs, float(loads[pairs].sum(axis=1).max())


def _part(pairs: Ints, gpu: int, loads: Floats) -> bool:
    """Separate the two copies on a GPU; false where every other GPU holds the expert too."""
    expert = pairs[gpu, 0]
    given, kept = pairs, pairs[:, ::-1]
    fuller = np.maximum(loads[expert] + loads[given], loads[expert] + loads[kept])
    fuller[(pairs == expert).any(axis=1)] = np.inf
    fuller[given == ALONE] = np.inf
    other, side = np.unravel_index(int(fuller.argmin()), fuller.shape)
    if fuller[other, side] == np.inf:
        return False
    pairs[gpu, 1], pairs[other, side] = pairs[other, side], expert
    return True
