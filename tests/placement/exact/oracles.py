"""Exhaustive search on small cases."""

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np

from placement.arrays import Ints
from placement.layout import Layout


def every_placement(*, experts: int, layout: Layout) -> Iterator[Ints]:
    """Every legal way to fill one layer's slots, [1, slots]: all experts present, none twice on a GPU."""
    sets = [list(combinations(range(experts), int(slots))) for slots in layout.slots_of_gpu]
    for chosen in product(*sets):
        row = [expert for gpu in chosen for expert in gpu]
        if len(set(row)) == experts:
            yield np.array([row], dtype=np.int64)
