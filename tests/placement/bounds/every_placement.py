"""Exhaustive search over the legal placements of a small layer, and the lowest imbalance among them."""

from itertools import combinations, product

import numpy as np

from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.validation import copies


def every_placement(*, experts: int, layout: Layout) -> Ints:
    """[placements, slots], slots of a GPU in ascending order of expert."""
    per_gpu = [list(combinations(range(experts), int(slots))) for slots in layout.slots_of_gpu]
    rows = np.array([sum(chosen, ()) for chosen in product(*per_gpu)], dtype=np.int64)
    whole: Ints = rows[(copies(rows, experts=experts) > 0).all(axis=1)]
    return whole


def optimum(tokens: Floats, *, layout: Layout, rule: Dispatch = Dispatch.EQUAL) -> float:
    """The imbalance of the best placement, for one layer's tokens [experts]."""
    rows = every_placement(experts=len(tokens), layout=layout)
    return float(imbalance(rows, np.tile(tokens, (len(rows), 1)), layout=layout, rule=rule).per_layer.min())
