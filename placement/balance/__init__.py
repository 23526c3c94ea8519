"""Load balancing for engines that split an expert's tokens evenly among its copies; `balanced` is the entry.

docs/explanation/placement/balance.md has the formulation and the steps of the search.
"""

import numpy as np

from placement.arrays import MAX_EXPERTS, Floats, Ints
from placement.bounds.lower_bound import quick_bound
from placement.layout import Layout
from placement.validation import check_capacity

TOLERANCE = 7e-4  # of the bound: loads of the next minutes differ by far more
EFFORT = 2**17  # rounds x slots^2 of perturbation per layer that is further off: 1 round at 288 slots, 512 at 16


def balanced(tokens: Floats, *, layout: Layout, tolerance: float = TOLERANCE, effort: int = EFFORT) -> Ints:
    """An even placement [layers, slots] for loads [layers, experts].

    The search ends for a layer within `tolerance` of its bound.  `effort` limits the perturbation of the others: rounds
    times slots squared.
    """
    from placement.balance.packing import capacity_of  # noqa: PLC0415
    from placement.balance.search import balance  # noqa: PLC0415 - compiles on import

    check_capacity(experts=tokens.shape[1], layout=layout)
    targets = quick_bound(tokens, layout=layout) * (1 + tolerance)
    parts = np.ascontiguousarray(tokens / tokens.sum(axis=1, keepdims=True))
    capacity, rounds = capacity_of(layout.slots_of_gpu), effort // layout.slots**2
    alike = len(capacity) == 2 and float(layout.speeds.min()) == float(layout.speeds.max())
    return balance(parts, hottest_first(parts), layout.arrays, capacity, targets, alike, rounds)


def hottest_first(tokens: Floats) -> Ints:
    """[layers, experts]: experts by falling load, by rising number among nearly equal ones.

    The sort key is the bits of the load, which order as positive floats do, with the expert's number in the last bits.
    All keys differ, so every sort algorithm gives the same order.
    """
    experts = np.arange(tokens.shape[1])
    bits: Ints = tokens.view(np.int64)
    keys = np.sort(-bits & -MAX_EXPERTS | experts, axis=1)
    return keys & (MAX_EXPERTS - 1)
