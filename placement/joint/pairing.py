"""From replica counts to slots, where no GPU has more than two: the heaviest alone, then heaviest with lightest.

That minimises the fullest GPU.  Two copies of one expert can only meet in the middle; one of them then changes places
with the copy of another GPU for which the fuller of the two GPUs is fullest least.
"""

import numpy as np

from placement.arrays import Floats, Ints

ALONE = -1  # in the place of a second copy


def paired(weights: Floats, counts: Ints, *, singles: int) -> tuple[Ints, float]:
    """[GPUs, 2], those of one slot first, of one layer; and the fullest GPU, infinite where that is unlawful."""
    loads = np.append(weights / counts, 0.0)  # the last is that of ALONE
    experts = np.repeat(np.arange(len(counts)), counts)
    falling = experts[np.argsort(-loads[experts], kind="stable")]
    first = falling[: (len(falling) + singles) // 2]
    pairs = np.column_stack([first, np.concatenate([np.full(singles, ALONE), falling[: len(first) - 1 : -1]])])
    for gpu in np.flatnonzero(pairs[:, 0] == pairs[:, 1]).tolist():
        if pairs[gpu, 0] == pairs[gpu, 1] and not _part(pairs, gpu, loads):
            return pairs, float("inf")
    return pairs, float(loads[pairs].sum(axis=1).max())


def _part(pairs: Ints, gpu: int, loads: Floats) -> bool:
    """Part the two copies on a GPU; false where every other GPU holds that expert too."""
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
