"""Initial replica counts: the expert whose copies are the most loaded gets one more copy, again and again.

This minimises the load of the hottest copy for the number of slots.  An expert has at most one copy per GPU.  With
unequal slots per GPU the counts c and the slots n must also allow a table of zeros and ones with these sums (Gale 1957,
Ryser 1957): for each j,

    the j greatest c together  <=  sum over GPUs of min(n, j)

Counts that allow a table are the independent sets of a matroid.  The greedy rule can therefore always fill the slots,
and its hottest copy is the coldest possible.

Where GPUs differ in load per slot, equal copies are not best: slow GPUs need cold copies for their slots, and GPUs with
few slots need hot ones.  Some copies are then reserved for the coldest experts.
"""

from typing import NamedTuple

import numpy as np

from fleet.numba_cache import jit_inner
from placement.arrays import Ints
from placement.balance.heap import Heap, drop_top, push, replace_top
from placement.balance.state import Layer


class Workspace(NamedTuple):
    heap: Heap  # of experts with more than one copy
    copies: Ints  # [slots]: the expert of each copy


@jit_inner
def replicate(layer: Layer, order: Ints, capacity: Ints, workspace: Workspace, cold: int) -> None:
    """Compute counts and loads, and the expert of each copy, most loaded first.

    `order`: experts, hottest first.  `capacity`: `capacity_of` the layout.  `cold`: copies for the coldest experts.
    """
    heap, copies = workspace.heap, workspace.copies
    spare = len(copies) - len(order) - _coldest_twice(layer, order, capacity, cold)
    size, following, written = 0, 0, 0
    while written < len(copies):
        is_next = following < len(order) and (size == 0 or layer.each[order[following]] >= heap.keys[0])
        expert = order[following] if is_next else heap.items[0]
        if spare > 0 and _may_grow(layer.counts, expert, capacity):
            spare -= 1
            _add_copy(layer, expert)
            if is_next:
                size = push(heap, size, layer.each[expert], expert)
            else:
                replace_top(heap, size, layer.each[expert], expert)
        else:  # its copies are the most loaded of all that may still change
            for _ in range(layer.counts[expert]):
                copies[written] = expert
                written += 1
            if not is_next:
                size = drop_top(heap, size)
        following += is_next


@jit_inner
def _coldest_twice(layer: Layer, order: Ints, capacity: Ints, cold: int) -> int:
    """One copy of each expert, and a second one of up to `cold` of the coldest; returns the number of second copies."""
    experts, given = len(order), 0
    for expert in range(experts):
        layer.counts[expert], layer.each[expert] = 1, layer.tokens[expert]
    while given < min(cold, experts) and _may_grow(layer.counts, order[experts - 1 - given], capacity):
        _add_copy(layer, order[experts - 1 - given])
        given += 1
    return given


@jit_inner
def _add_copy(layer: Layer, expert: int) -> None:
    layer.counts[expert] += 1
    layer.each[expert] = layer.tokens[expert] / layer.counts[expert]


def capacity_of(slots_of_gpu: Ints) -> Ints:
    """[maximum slots of a GPU + 1]: the copies that j experts may have together; with equal slots only that of one."""
    gpus, most = len(slots_of_gpu), int(slots_of_gpu.max())
    if (slots_of_gpu == most).all():
        return np.array([0, gpus], dtype=np.int64)
    capacity: Ints = np.minimum(slots_of_gpu[:, np.newaxis], np.arange(most + 1)).sum(axis=0)
    return capacity


@jit_inner
def _may_grow(counts: Ints, expert: int, capacity: Ints) -> bool:
    if counts[expert] + 1 > capacity[1]:
        return False
    if len(capacity) == 2:
        return True
    with_count = np.zeros(capacity[1] + 1, np.int64)
    for other in range(len(counts)):
        with_count[counts[other] + (other == expert)] += 1
    together, count = 0, len(with_count) - 1
    for j in range(1, min(len(capacity), len(counts) + 1)):
        while with_count[count] == 0:
            count -= 1
        with_count[count] -= 1
        together += count
        if together > capacity[j]:
            return False
    return True
