"""A start: replica counts, then the packing of their copies onto GPUs.

docs/explanation/placement/balance.md has both rules.  Counts that satisfy the condition of Gale and Ryser (1957) are
the independent sets of a matroid, so the greedy rule can always fill the slots, and its hottest copy is the coldest
possible.  Where GPUs differ in load per slot, some copies are reserved for the coldest experts: slow GPUs need them.

Where every GPU with a free slot already holds the expert, one swap frees a slot: a copy x moves from a full GPU h to a
GPU g with a free slot, and the expert takes its place.  With equal slots n such an x always exists: h holds n other
experts, g at most n - 2.  With unequal slots it may not.  The layer is then packed by the rule that proves the
condition sufficient: the copies of each expert in turn go to the GPUs with most free slots.
"""

from typing import NamedTuple

import numpy as np

from fleet.numba_cache import jit_inner
from placement.arrays import Floats, Ints
from placement.balance.state import Layer, settle


class Heap(NamedTuple):
    """The arrays limit the number of items."""

    keys: Floats
    items: Ints


@jit_inner
def push(heap: Heap, size: int, key: float, item: int) -> int:
    keys, items, at = heap.keys, heap.items, size
    while at > 0 and key > keys[(at - 1) // 2]:
        keys[at], items[at] = keys[(at - 1) // 2], items[(at - 1) // 2]
        at = (at - 1) // 2
    keys[at], items[at] = key, item
    return size + 1


@jit_inner
def replace_top(heap: Heap, size: int, key: float, item: int) -> None:
    keys, items, at, child = heap.keys, heap.items, 0, 1
    while child < size:
        if child + 1 < size:
            child += int(keys[child + 1] > keys[child])  # without a branch, whose prediction would fail half the time
        if keys[child] <= key:
            break
        keys[at], items[at] = keys[child], items[child]
        at, child = child, 2 * child + 1
    keys[at], items[at] = key, item


@jit_inner
def drop_top(heap: Heap, size: int) -> int:
    replace_top(heap, size - 1, heap.keys[size - 1], heap.items[size - 1])
    return size - 1


def capacity_of(slots_of_gpu: Ints) -> Ints:
    """[maximum slots of a GPU + 1]: the copies that j experts may have together; with equal slots only that of one."""
    gpus, most = len(slots_of_gpu), int(slots_of_gpu.max())
    if (slots_of_gpu == most).all():
        return np.array([0, gpus], dtype=np.int64)
    capacity: Ints = np.minimum(slots_of_gpu[:, np.newaxis], np.arange(most + 1)).sum(axis=0)
    return capacity


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


class Packing(NamedTuple):
    filled: Ints  # [GPUs]: occupied slots
    heap: Heap  # GPUs with free slots
    popped: Ints  # [GPUs]: temporarily out of the heap
    by_load: bool  # order by least load, else by need


@jit_inner
def pack(layer: Layer, copies: Ints, packing: Packing) -> None:
    """Place `copies`, most loaded first."""
    heap, popped = packing.heap, packing.popped
    size = 0
    _clear(layer, packing)
    for gpu in range(len(layer.shares)):
        size = push(heap, size, _need(layer, packing, gpu), gpu)
    for expert in copies:
        skipped = 0
        while size > 0 and layer.holds[heap.items[0], expert]:
            popped[skipped] = heap.items[0]
            skipped += 1
            size = drop_top(heap, size)
        if size > 0:
            gpu = heap.items[0]
            _lay(layer, packing, gpu, expert)
            if _free(layer, packing, gpu) > 0:
                replace_top(heap, size, _need(layer, packing, gpu), gpu)
            else:
                size = drop_top(heap, size)
        elif not _laid_by_swap(layer, packing, popped[:skipped], expert):
            _pack_by_free_slots(layer, copies, packing)
            break
        for gpu in popped[:skipped]:
            if _free(layer, packing, gpu) > 0:
                size = push(heap, size, _need(layer, packing, gpu), gpu)
    settle(layer)


@jit_inner
def _clear(layer: Layer, packing: Packing) -> None:
    for gpu in range(len(layer.shares)):
        packing.filled[gpu], layer.carried[gpu] = 0, 0.0
        for expert in range(len(layer.tokens)):
            layer.holds[gpu, expert] = False


@jit_inner
def _lay(layer: Layer, packing: Packing, gpu: int, expert: int) -> None:
    layer.expert_at[layer.first[gpu] + packing.filled[gpu]] = expert
    layer.holds[gpu, expert] = True
    layer.carried[gpu] += layer.each[expert]
    packing.filled[gpu] += 1


@jit_inner
def _free(layer: Layer, packing: Packing, gpu: int) -> int:
    return int(layer.first[gpu + 1] - layer.first[gpu] - packing.filled[gpu])


@jit_inner
def _need(layer: Layer, packing: Packing, gpu: int) -> float:
    if packing.by_load:
        return float(-layer.carried[gpu] / layer.shares[gpu])
    return float((layer.shares[gpu] - layer.carried[gpu]) / _free(layer, packing, gpu))


@jit_inner
def _laid_by_swap(layer: Layer, packing: Packing, with_free_slot: Ints, expert: int) -> bool:
    """Move some copy from a full GPU to one with a free slot and put `expert` in its place; False if impossible."""
    for full in range(len(layer.shares)):
        if layer.holds[full, expert] or _free(layer, packing, full) > 0:
            continue
        for place in range(layer.first[full], layer.first[full + 1]):
            moved = layer.expert_at[place]
            for gpu in with_free_slot:
                if not layer.holds[gpu, moved]:
                    _lay(layer, packing, gpu, moved)
                    layer.expert_at[place] = expert
                    layer.holds[full, moved], layer.holds[full, expert] = False, True
                    layer.carried[full] += layer.each[expert] - layer.each[moved]
                    return True
    return False


@jit_inner
def _pack_by_free_slots(layer: Layer, copies: Ints, packing: Packing) -> None:
    """Each expert's copies to the GPUs with most free slots; always possible for counts of `replicate`."""
    size, at = 0, 0
    _clear(layer, packing)
    for gpu in range(len(layer.shares)):
        size = push(packing.heap, size, float(_free(layer, packing, gpu)), gpu)
    while at < len(copies):
        expert = copies[at]
        taken = packing.popped[: layer.counts[expert]]
        for k in range(len(taken)):
            taken[k] = packing.heap.items[0]
            size = drop_top(packing.heap, size)
        for gpu in taken:
            _lay(layer, packing, gpu, expert)
            if _free(layer, packing, gpu) > 0:
                size = push(packing.heap, size, float(_free(layer, packing, gpu)), gpu)
        at += len(taken)
