"""The most balanced placement of a small layer, by exhaustive search."""

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np

from placement.arrays import Floats, Ints
from placement.layout import Layout


def all_placements(*, experts: int, layout: Layout) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every way to fill each GPU with different experts so that every expert has a slot."""
    for held in product(*(combinations(range(experts), int(slots)) for slots in layout.slots_of_gpu)):
        if len({expert for gpu in held for expert in gpu}) == experts:
            yield held


def best_fill(tokens: Floats, *, layout: Layout) -> float:
    """Of one layer's loads [experts]: the lowest possible load of the busiest GPU, relative to the mean."""
    found = np.inf
    for held in all_placements(experts=len(tokens), layout=layout):
        counts = np.bincount([expert for gpu in held for expert in gpu], minlength=len(tokens))
        carried = np.array([(tokens[list(gpu)] / counts[list(gpu)]).sum() for gpu in held])
        found = min(found, float((carried / layout.shares).max() / tokens.sum()))
    return found


def coldest_hottest_copy(tokens: Floats, *, layout: Layout) -> float:
    """The lowest possible load of the most loaded copy over all placements."""
    found = np.inf
    for held in all_placements(experts=len(tokens), layout=layout):
        counts: Ints = np.bincount([expert for gpu in held for expert in gpu], minlength=len(tokens))
        found = min(found, float((tokens / counts).max()))
    return found
