"""What two slots per GPU ask of the copies, as compiled code counts it (after Hall's theorem).

Let a be the weight of a copy in units of the even load, T a ceiling and h > T/2.  On a GPU of two slots a copy of at
least h leaves room for one of at most T - h and no more, and two of them never share a GPU.  GPUs of one slot ask for
nothing.  So any placement under T keeps, for every h,

    copies that weigh >= h  -  copies that weigh <= T - h  <=  GPUs of one slot          (row h)

and counts of copies that keep every row can be paired under T: heaviest with lightest.  A row changes only where a
copy can weigh h, so the weights that heavy copies can have are all the rows there are.

Plain loops stand where numpy has a word for it (sorting, searching): numba takes seconds to compile each of those.
"""

from typing import Any, NamedTuple, cast

import numpy as np
from numba import float64, int64, types

from fleet.numba_cache import jit_inner
from placement.arrays import Floats

ROUNDING = 1e-12  # of the even load: the error of sums and quotients
MAX_THRESHOLDS = 64  # per expert: counts that make a copy heavy; fewer rows only weaken a bound


class TwoSlotCase(NamedTuple):
    """One layer on GPUs of one or two slots."""

    weights: Floats  # [experts], even load per GPU = 1
    slots: int
    singles: int  # GPUs of one slot
    most: int  # copies that an expert can have


TWOS: Any = cast("Any", types).NamedTuple((float64[::1], int64, int64, int64), TwoSlotCase)  # the numba type


@jit_inner
def least_count(weight: float, limit: float) -> int:
    """The minimum number of copies that each weigh at most the limit."""
    return max(1, int(np.ceil(weight / limit - ROUNDING)))


@jit_inner
def sort(keys: Floats) -> None:
    """Sort in rising order (Shell 1959, gaps of a third)."""
    gap = 1
    while gap < len(keys) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for start in range(gap, len(keys)):
            key, at = keys[start], start
            while at >= gap and keys[at - gap] > key:
                keys[at] = keys[at - gap]
                at -= gap
            keys[at] = key
        gap //= 3


@jit_inner
def up_to(rows: Floats, limit: float) -> int:
    """The number of rows, rising, that are at most the limit."""
    low, high = 0, len(rows)
    while low < high:
        middle = (low + high) // 2
        if rows[middle] <= limit:
            low = middle + 1
        else:
            high = middle
    return low


@jit_inner
def thresholds(case: TwoSlotCase, ceiling: float) -> Floats:
    """Every h, rising: possible weights of a copy from half the ceiling up."""
    weights = case.weights
    found = np.empty(len(weights) * MAX_THRESHOLDS)
    filled = 0
    for expert in range(len(weights)):
        count = least_count(weights[expert], ceiling)
        for more in range(count, min(case.most, count + MAX_THRESHOLDS - 1) + 1):
            if weights[expert] / more <= ceiling / 2:
                break
            found[filled] = weights[expert] / more
            filled += 1
    found = found[:filled]
    sort(found)
    kept = 0
    for at in range(filled):
        if at == 0 or found[at] > found[kept - 1]:
            found[kept] = found[at]
            kept += 1
    return found[:kept]


@jit_inner
def place(rows: Floats, weight: float, ceiling: float) -> int:
    """+n: a copy of this weight is heavy in the first n rows; -n: it is light in them."""
    heavy = weight > ceiling / 2
    among = up_to(rows, weight if heavy else ceiling - weight + ROUNDING)
    return among if heavy else -among
