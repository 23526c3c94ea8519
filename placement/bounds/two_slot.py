"""A certified bound for GPUs with at most two slots, from replica counts and pairing together.

One number y[e,c] in [0, 1] per expert e and count c means "e has c copies".  With the rows h of
`placement.bounds.hall_condition`, a ceiling T is infeasible when this linear program has no solution:

    sum_c y[e,c] = 1 for each e,   sum_{e,c} c y[e,c] = slots,
    sum_{e,c: w_e/c >= h} c y[e,c] - sum_{e,c: w_e/c <= T-h} c y[e,c] <= single GPUs   for each h.

Prices mu_h >= 0 on the rows and lambda on the slots prove this.  With M(a) = sum of mu_h over h <= a, a copy costs
phi(a) = M(a) where a > T/2 and -M(T - a) elsewhere, and T is infeasible when

    sum_e min_c c (lambda + phi(w_e/c))  >  lambda slots + single GPUs * sum_h mu_h.

The left side is separable, so one pass over experts and counts checks a proof.  The relaxation method (Agmon 1954,
Motzkin and Schoenberg 1954) finds prices: it steps along the violated subgradient, by Polyak's length.  A passed check
is a proof for any prices; too few steps only give a lower bound.
"""

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints
from placement.bounds.hall_condition import TWOS, TwoSlotCase, least_count, place, thresholds

OPTIONS = 40  # examined counts per expert; one that is lighter than any stands for all larger ones
AIM = 0.05  # the margin, per unit of all prices, by which a step tries to pass the check
PROVEN = 1e-9  # the margin that the check needs


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
        least = least_count(weights[expert], ceiling)
        for count in range(least, max(least, case.most) + 1):
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
