"""What two slots per GPU ask of the copies, as compiled code counts it (after Hall's theorem).

Let a be the weight of a copy in units of the even load, T a ceiling and h > T/2.  On a GPU of two slots a copy of at
least h leaves room for one of at most T - h and no more, and two of them never share a GPU.  GPUs of one slot ask for
nothing.  So any placement under T keeps, for every h,

    copies that weigh >= h  -  copies that weigh <= T - h  <=  GPUs of one slot          (row h)

and counts of copies that keep every row can be paired under T: heaviest with lightest.  A row changes only where a
copy can weigh h, so the weights that heavy copies can have are all the rows there are.
"""

from typing import NamedTuple

import numpy as np

from fleet.compiled import part
from placement.arrays import Floats, Ints

ROUNDING = 1e-12  # of the even load: what sums and quotients may be off by
MOST_THRESHOLDS = 64  # per expert: how many counts make a copy heavy; fewer rows only weaken a bound


class Twos(NamedTuple):
    """One layer on GPUs of one or two slots."""

    weights: Floats  # [experts], even load per GPU = 1
    slots: int
    singles: int  # GPUs of one slot
    most: int  # copies that an expert can have


@part
def least_count(weight: float, limit: float) -> int:
    """The fewest copies that each weigh at most the limit."""
    return max(1, int(np.ceil(weight / limit - ROUNDING)))


@part
def thresholds(twos: Twos, ceiling: float) -> Floats:
    """Every h, rising: weights from half the ceiling up that a copy can have."""
    weights = twos.weights
    found = np.empty(len(weights) * MOST_THRESHOLDS)
    filled = 0
    for expert in range(len(weights)):
        count = least_count(weights[expert], ceiling)
        for more in range(count, min(twos.most, count + MOST_THRESHOLDS - 1) + 1):
            if weights[expert] / more <= ceiling / 2:
                break
            found[filled] = weights[expert] / more
            filled += 1
    found = np.sort(found[:filled])
    kept = 0
    for at in range(filled):
        if at == 0 or found[at] > found[kept - 1]:
            found[kept] = found[at]
            kept += 1
    return found[:kept]


@part
def place(rows: Floats, weight: float, ceiling: float) -> int:
    """+n: a copy of this weight stands among the heavy ones of the first n rows; -n: among their light ones."""
    if weight > ceiling / 2:
        return int(np.searchsorted(rows, weight, side="right"))
    return -int(np.searchsorted(rows, ceiling - weight + ROUNDING, side="right"))


@part
def greedy_counts(twos: Twos) -> Ints:
    """Every expert once, then one more copy, again and again, of the one whose copies weigh most."""
    weights, experts = twos.weights, len(twos.weights)
    counts = np.ones(experts, np.int64)
    for _ in range(twos.slots - experts):
        hottest, weight = -1, -1.0
        for expert in range(experts):
            if counts[expert] < twos.most and weights[expert] > weight * counts[expert]:
                hottest, weight = expert, weights[expert] / counts[expert]
        counts[hottest] += 1
    return counts


@part
def paired_peak(twos: Twos, counts: Ints) -> float:
    """The fullest GPU when the heaviest copies lie alone and the others heaviest with lightest."""
    copies = np.empty(twos.slots)
    filled = 0
    for expert in range(len(counts)):
        for _ in range(counts[expert]):
            copies[filled] = twos.weights[expert] / counts[expert]
            filled += 1
    copies = np.sort(copies)
    peak, paired = copies[filled - 1], filled - twos.singles
    for at in range(paired // 2):
        peak = max(peak, copies[at] + copies[paired - 1 - at])
    return float(peak)
