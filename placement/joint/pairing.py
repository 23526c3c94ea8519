"""From replica counts to slots, where no GPU has more than two: the heaviest alone, then heaviest with lightest.

That minimises the fullest GPU.  Two copies of one expert can only meet in the middle; one of them then changes places
with the copy of another GPU for which the fuller of the two GPUs is fullest least.
"""

import numpy as np

from fleet.compiled import part
from placement.arrays import Floats, Ints
from placement.bounds.rows import Twos


@part
def _settle(weights: Floats, counts: Ints, pairs: Ints, at: int) -> bool:
    """Part the two copies on a GPU; false where every other GPU holds that expert too."""
    expert = pairs[at, 0]
    weight = weights[expert] / counts[expert]
    best, chosen, side = np.inf, -1, 0
    for other in range(len(pairs)):
        if pairs[other, 0] == expert or pairs[other, 1] == expert:
            continue
        for place in range(2):
            given, kept = pairs[other, place], pairs[other, 1 - place]
            if given < 0:
                continue
            mine = weight + weights[given] / counts[given]
            yours = weight + (weights[kept] / counts[kept] if kept >= 0 else 0.0)
            if max(mine, yours) < best:
                best, chosen, side = max(mine, yours), other, place
    if chosen < 0:
        return False
    pairs[at, 1], pairs[chosen, side] = pairs[chosen, side], expert
    return True


@part
def paired(twos: Twos, counts: Ints, pairs: Ints) -> float:
    """Fill `pairs` [GPUs, 2], those of one slot (the second is -1) first; the fullest GPU, or infinity."""
    weights, slots, singles = twos.weights, twos.slots, twos.singles
    copies, load = np.empty(slots, np.int64), np.empty(slots)
    filled = 0
    for expert in range(len(weights)):
        for _ in range(counts[expert]):
            copies[filled], load[filled] = expert, -weights[expert] / counts[expert]
            filled += 1
    copies = copies[np.argsort(load)]
    for gpu in range(len(pairs)):
        pairs[gpu, 0] = copies[gpu]
        pairs[gpu, 1] = -1 if gpu < singles else copies[slots - 1 - (gpu - singles)]
    for gpu in range(singles, len(pairs)):
        if pairs[gpu, 0] == pairs[gpu, 1] and not _settle(weights, counts, pairs, gpu):
            return np.inf
    peak = 0.0
    for gpu in range(len(pairs)):
        first, second = pairs[gpu, 0], pairs[gpu, 1]
        beside = weights[second] / counts[second] if second >= 0 else 0.0
        peak = max(peak, weights[first] / counts[first] + beside)
    return float(peak)
