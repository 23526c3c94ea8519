"""The quick bound: every copy fits its GPU together with the lightest neighbours that it can have there.

docs/explanation/placement/bounds.md has the conditions.  As the neighbours' weight p grows the counts grow, until
nothing changes or the slots are used up.  A copy of an expert weighs at least w / GPUs where the rule is free, because
a GPU that holds one of several copies computes its own tokens.  T = 1 is always a bound.
"""

from typing import NamedTuple

import numpy as np
from numba import float64, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints

TOLERANCE = 1e-6
ROUNDING = 1e-12
ROUNDS = 4  # of counts and neighbours; fewer give a lower bound


class GpuClasses(NamedTuple):
    """Classes of equal GPUs, and the rule."""

    shares: Floats  # of the total speed, of each GPU of the class
    slots: Ints  # of each GPU
    gpus: Ints  # number of GPUs
    equal: int  # whether copies share evenly


@jit_inner
def _neighbour_loads(weights: Floats, kinds: GpuClasses, counts: Ints, spare: int, companies: Floats) -> None:
    """[n]: the minimum weight of n copies of different experts."""
    most, gpus, equal = len(companies) - 1, 0, kinds.equal
    for of_kind in kinds.gpus:
        gpus += of_kind
    companies.fill(np.inf)
    companies[0] = 0.0
    for expert in range(len(weights)):
        copies = min(gpus, counts[expert] + spare)
        divided = copies if equal or copies == 1 else gpus
        at = most
        if at and weights[expert] < companies[at] * divided:
            weight = weights[expert] / divided
            while at > 1 and companies[at - 1] > weight:
                companies[at] = companies[at - 1]
                at -= 1
            companies[at] = weight
    for at in range(1, most + 1):
        companies[at] += companies[at - 1]


@jit_inner
def _count(weight: float, capacities: Floats, gpus: Ints, equal: int) -> int:
    """The minimum number of copies for falling capacities; 0: none suffices."""
    before, capacity_before = 0, 0.0
    for kind in range(len(capacities)):
        if capacities[kind] <= 0:
            break
        lacking = weight / capacities[kind] if equal else before + (weight - capacity_before) / capacities[kind]
        count = max(before + 1, int(np.ceil(lacking * (1 - ROUNDING) - ROUNDING)))
        before += gpus[kind]
        capacity_before += capacities[kind] * gpus[kind]
        if count <= before:
            return count
    return 0


@jit_inner
def _is_feasible(weights: Floats, kinds: GpuClasses, ceiling: float, counts: Ints, companies: Floats) -> bool:
    """Whether the conditions allow the ceiling."""
    slots, spent = 0, -1
    for kind in range(len(kinds.gpus)):
        slots += kinds.slots[kind] * kinds.gpus[kind]
    companies.fill(0.0)
    falling, of_kind = np.empty(len(kinds.gpus)), np.empty(len(kinds.gpus), np.int64)
    for _ in range(ROUNDS):
        for kind in range(len(falling)):
            if companies[kinds.slots[kind]] > ceiling * kinds.shares[kind] + ROUNDING:
                return False
            falling[kind] = ceiling * kinds.shares[kind] - companies[kinds.slots[kind] - 1]
            of_kind[kind] = kinds.gpus[kind]
        for last in range(1, len(falling)):  # falling; there are few classes
            at = last
            while at > 0 and falling[at - 1] < falling[at]:
                falling[at - 1], falling[at] = falling[at], falling[at - 1]
                of_kind[at - 1], of_kind[at] = of_kind[at], of_kind[at - 1]
                at -= 1
        used = 0
        for expert in range(len(weights)):
            fits = weights[expert] <= falling[0]  # most do
            counts[expert] = 1 if fits else _count(weights[expert], falling, of_kind, kinds.equal)
            used += counts[expert]
            if counts[expert] == 0 or used > slots:
                return False
        if used == spent:
            return True
        spent = used
        _neighbour_loads(weights, kinds, counts, slots - used, companies)
    return True


@jit_entry(float64[::1](float64[:, ::1], float64[::1], int64[::1], int64[::1], int64, int64))
def max_load_bounds(  # noqa: PLR0917 - compiled code takes no keywords
    parts: Floats, shares_of_kind: Floats, slots_of_kind: Ints, gpus_of_kind: Ints, most: int, equal: int
) -> Floats:
    """[layers], for parts of each layer's tokens and classes of GPUs; `most`: maximum slots of a GPU."""
    layers, experts = parts.shape
    kinds = GpuClasses(shares_of_kind, slots_of_kind, gpus_of_kind, equal)
    counts, companies = np.empty(experts, np.int64), np.empty(most + 1)
    bounds = np.ones(layers)
    for layer in range(layers):
        low, high = 1.0, 1.0
        while not _is_feasible(parts[layer], kinds, high, counts, companies):
            low, high = high, 2 * high
        while high - low > TOLERANCE * low:
            ceiling = (low + high) / 2
            if _is_feasible(parts[layer], kinds, ceiling, counts, companies):
                high = ceiling
            else:
                low = ceiling
        bounds[layer] = low
    return bounds
