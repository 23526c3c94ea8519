"""How many copies each expert gets at first: one more, again and again, of the expert whose copies are most loaded.

That makes the hottest copy as cold as it can be for the number of slots.  No expert may have more copies than can lie
on different GPUs.  With equal slots per GPU that is the number of GPUs; with unequal ones the counts c and the slots n
must also allow a table of zeros and ones with these sums (Gale 1957, Ryser 1957): for each j,

    the j greatest c together  <=  sum over GPUs of min(n, j)

Counts that allow it and still fall short of the slots can always be raised somewhere, as such counts form a matroid's
independent sets; so the greedy rule never gets stuck, and its hottest copy is the coldest possible there too.

Where GPUs differ in load per slot, copies all alike are not wanted: slow GPUs need cold copies for their slots, and
those with few slots hot ones.  Then some copies are kept for the coldest experts, which leaves the hot ones hotter.
"""

from typing import NamedTuple

import numpy as np

from fleet.numba_cache import jit_inner
from placement.arrays import Ints
from placement.balance.heap import Heap, drop_top, push, replace_top
from placement.balance.state import Layer


class Workspace(NamedTuple):
    """Space for the search, and what comes of it."""

    heap: Heap  # of experts that have more than one copy
    copies: Ints  # [slots]: their experts


@jit_inner
def replicate(layer: Layer, order: Ints, room: Ints, workspace: Workspace, cold: int) -> None:
    """Fill in counts and loads, and the expert of each copy, most loaded first.

    `order`: experts, hottest first.  `room`: `room_of` the layout.  `cold`: copies kept for the coldest experts.
    """
    heap, copies = workspace.heap, workspace.copies
    spare = len(copies) - len(order) - _coldest_twice(layer, order, room, cold)
    size, following, written = 0, 0, 0
    while written < len(copies):
        is_next = following < len(order) and (size == 0 or layer.each[order[following]] >= heap.keys[0])
        expert = order[following] if is_next else heap.items[0]
        if spare > 0 and _may_grow(layer.counts, expert, room):
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
def _coldest_twice(layer: Layer, order: Ints, room: Ints, cold: int) -> int:
    """One copy each, and a second one of up to `cold` of the coldest; how many got it."""
    experts, given = len(order), 0
    for expert in range(experts):
        layer.counts[expert], layer.each[expert] = 1, layer.tokens[expert]
    while given < min(cold, experts) and _may_grow(layer.counts, order[experts - 1 - given], room):
        _add_copy(layer, order[experts - 1 - given])
        given += 1
    return given


@jit_inner
def _add_copy(layer: Layer, expert: int) -> None:
    layer.counts[expert] += 1
    layer.each[expert] = layer.tokens[expert] / layer.counts[expert]


def room_of(slots_of_gpu: Ints) -> Ints:
    """[most slots of a GPU + 1]: how many copies j experts may have together; with equal slots just that of one."""
    gpus, most = len(slots_of_gpu), int(slots_of_gpu.max())
    if (slots_of_gpu == most).all():
        return np.array([0, gpus], dtype=np.int64)
    room: Ints = np.minimum(slots_of_gpu[:, np.newaxis], np.arange(most + 1)).sum(axis=0)
    return room


@jit_inner
def _may_grow(counts: Ints, expert: int, room: Ints) -> bool:
    if counts[expert] + 1 > room[1]:
        return False
    if len(room) == 2:
        return True
    with_count = np.zeros(room[1] + 1, np.int64)
    for other in range(len(counts)):
        with_count[counts[other] + (other == expert)] += 1
    together, count = 0, len(with_count) - 1
    for j in range(1, min(len(room), len(counts) + 1)):
        while with_count[count] == 0:
            count -= 1
        with_count[count] -= 1
        together += count
        if together > room[j]:
            return False
    return True
