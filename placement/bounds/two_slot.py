"""A certified bound for GPUs with at most two slots, from replica counts and pairing together.

docs/explanation/placement/bounds.md has the rows h, the linear program, and the prices that prove it infeasible.  A row
changes only where a copy can weigh h, so the possible weights of heavy copies are all rows.  The proof is separable, so
one pass over experts and counts checks it.  The relaxation method (Agmon 1954, Motzkin and Schoenberg 1954) finds
prices: it steps along the violated subgradient, by Polyak's length.  A passed check is a proof for any prices; too few
steps only give a lower bound.

Sorting and searching are plain loops: numba takes seconds to compile numpy's.
"""

from typing import Any, NamedTuple, cast

import numpy as np
from numba import boolean, float64, int64, types

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints

ROUNDING = 1e-12  # of the even load: the error of sums and quotients
MAX_THRESHOLDS = 64  # per expert: counts that make a copy heavy; fewer rows only weaken a bound
OPTIONS = 40  # examined counts per expert; one that is lighter than any stands for all larger ones
AIM = 0.05  # the margin, per unit of all prices, by which a step tries to pass the check
PROVEN = 1e-9  # the margin that the check needs


class TwoSlotCase(NamedTuple):
    """One layer on GPUs of one or two slots."""

    weights: Floats  # [experts], even load per GPU = 1
    slots: int
    singles: int  # GPUs of one slot
    max_copies: int  # copies that an expert can have


TWOS: Any = cast("Any", types).NamedTuple((float64[::1], int64, int64, int64), TwoSlotCase)  # the numba type


@jit_inner
def min_count(weight: float, limit: float) -> int:
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
        count = min_count(weights[expert], ceiling)
        for more in range(count, min(case.max_copies, count + MAX_THRESHOLDS - 1) + 1):
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


class Options(NamedTuple):
    """The counts of expert e, from first[e] up to first[e + 1]; of equal places only the least count."""

    first: Ints
    counts: Ints
    places: Ints  # of copies among the rows


@jit_inner
def _options(case: TwoSlotCase, rows: Floats, ceiling: float) -> Options:
    """All counts that may matter under the ceiling."""
    weights = case.weights
    experts, lightest = len(weights), -len(rows)
    first = np.empty(experts + 1, np.int64)
    counts, places = np.empty(experts * OPTIONS, np.int64), np.empty(experts * OPTIONS, np.int64)
    filled = 0
    for expert in range(experts):
        first[expert] = filled
        least = min_count(weights[expert], ceiling)
        for count in range(least, max(least, case.max_copies) + 1):
            at = place(rows, weights[expert] / count, ceiling)
            if filled - first[expert] == OPTIONS - 1:
                at = lightest
            elif count > least and at == places[filled - 1]:
                continue
            counts[filled], places[filled] = count, at
            filled += 1
            if at == lightest:
                break
    first[experts] = filled
    return Options(first, counts[:filled], places[:filled])


@jit_inner
def _cheapest(options: Options, prices: Floats, slot_price: float, held: Floats) -> tuple[float, int]:
    """The minimum cost of the experts, and their slots; fills `held`: copies by place, light ones negative."""
    first, counts, places = options
    total = prices[-1]
    held.fill(0.0)
    cost, used = 0.0, 0
    for expert in range(len(first) - 1):
        best, chosen = np.inf, -1
        for option in range(first[expert], first[expert + 1]):
            count, at = counts[option], places[option]
            if count * (slot_price - total) >= best:
                break
            here = count * (slot_price + (prices[at] if at > 0 else -prices[-at]))
            if here < best:
                best, chosen = here, option
        cost += best
        used += counts[chosen]
        at = places[chosen]
        if at > 0:
            held[at] += counts[chosen]
        else:
            held[-at] -= counts[chosen]
    return cost, used


@jit_entry(boolean(TWOS, float64, int64))
def is_infeasible(case: TwoSlotCase, ceiling: float, steps: int) -> bool:
    """Whether prices were found that prove the ceiling infeasible."""
    rows = thresholds(case, ceiling)
    if len(rows) == 0:
        return False
    options = _options(case, rows, ceiling)
    mu, slope = np.full(len(rows), 1.0 / len(rows)), np.empty(len(rows))
    held, prices = np.empty(len(rows) + 1), np.zeros(len(rows) + 1)
    slot_price = 2.0
    for _ in range(steps):
        for row in range(len(rows)):
            prices[row + 1] = prices[row] + mu[row]
        total = prices[-1]
        slot_price = max(slot_price, total)  # below that, ever more of the lightest copies would pay
        cost, used = _cheapest(options, prices, slot_price, held)
        surplus = cost - slot_price * case.slots - case.singles * total
        if surplus > PROVEN * (1 + total):
            return True
        square, over = float((used - case.slots) ** 2), float(-case.singles)
        for row in range(len(rows) - 1, -1, -1):
            over += held[row + 1]
            slope[row] = 0.0 if mu[row] <= 0 and over < 0 else over
            square += slope[row] ** 2
        if square == 0.0:
            return False
        step = (AIM * total - surplus) / square
        total = 0.0
        for row in range(len(rows)):
            mu[row] = max(0.0, mu[row] + step * slope[row])
            total += mu[row]
        if total <= 0.0:
            return False
        for row in range(len(rows)):
            mu[row] /= total
        slot_price = (slot_price + step * (used - case.slots)) / total
    return False
