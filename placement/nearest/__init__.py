"""Placements for engines that send a token to the nearest copy (placement.dispatch, rule `nearest`).

`balanced_nearest` plans for the rule, by its average.  `balanced_for_sglang` continues with the whole numbers that
SGLang draws; `engine_loads` and `engine_imbalance` compute these for any placement.
"""

import numpy as np

from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.nearest.sglang_model import balanced_for_sglang, engine_choices, engine_imbalance, engine_loads
from placement.validation import check_capacity, check_slots

__all__ = ["balanced_for_sglang", "balanced_nearest", "engine_choices", "engine_imbalance", "engine_loads"]


def balanced_nearest(tokens: Floats, *, layout: Layout, start: Ints | None = None) -> Ints:
    """[layers, slots]: the most even plan found under rule `nearest`, for tokens [layers, experts].

    An expert with no more copies than there are nodes has no two on one node, where the layout allows that.  With
    `start` that plan is improved and never made worse.
    """
    check_capacity(experts=tokens.shape[1], layout=layout)
    loads = np.ascontiguousarray(tokens, dtype=np.float64)
    if start is None:
        return _planned(loads, np.empty((0, layout.slots), np.int64), layout, parts=True)
    check_slots(start, experts=tokens.shape[1], layout=layout)
    first = np.ascontiguousarray(start, dtype=np.int64)
    found = _planned(loads, first, layout, parts=True)
    worse = np.flatnonzero(_imbalances(found, loads, layout) > _imbalances(first, loads, layout))
    if len(worse):  # copies on different nodes cost more than the search gained
        found[worse] = _planned(loads[worse], first[worse], layout, parts=False)
    return found


def _imbalances(expert_of_slot: Ints, tokens: Floats, layout: Layout) -> Floats:
    return imbalance(expert_of_slot, tokens, layout=layout, rule=Dispatch.NEAREST).per_layer


def _planned(tokens: Floats, start: Ints, layout: Layout, *, parts: bool) -> Ints:
    from placement.nearest.plan import plan  # noqa: PLC0415  # compiles when first used

    return plan(tokens, start, layout.arrays, parts)
