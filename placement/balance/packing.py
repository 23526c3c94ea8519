"""The initial packing: the most loaded copy first, to the GPU that lacks most load.

A GPU's need is its fair load less its load, per free slot.  With equal GPUs this is almost the longest-processing-time
rule.  With GPUs of different speed or memory it leaves the cold copies to those with little fair load per slot; the
plain rule fills the fast GPUs first and leaves too few slots elsewhere.

Two copies of one expert never share a GPU.  Where every GPU with a free slot already holds the expert, one swap makes
room: a copy x moves from a full GPU h to a GPU g with a free slot, and the expert takes its place.  With equal slots n
such an x always exists: h holds n other experts, g at most n - 2.  With unequal slots it may not.  The layer is then
packed by the rule that proves Gale's and Ryser's condition sufficient: the copies of each expert in turn go to the GPUs
with most free slots.
"""

from typing import NamedTuple

from fleet.numba_cache import jit_inner
from placement.arrays import Ints
from placement.balance.heap import Heap, drop_top, push, replace_top
from placement.balance.state import Layer, settle


class Packing(NamedTuple):
    filled: Ints  # [GPUs]: occupied slots
    heap: Heap  # GPUs with free slots
    aside: Ints  # [GPUs]: temporarily out of the heap
    by_load: bool  # order by least load, else by need


@jit_inner
def pack(layer: Layer, copies: Ints, packing: Packing) -> None:
    """Place `copies`, most loaded first."""
    heap, aside = packing.heap, packing.aside
    size = 0
    _clear(layer, packing)
    for gpu in range(len(layer.shares)):
        size = push(heap, size, _need(layer, packing, gpu), gpu)
    for expert in copies:
        skipped = 0
        while size > 0 and layer.holds[heap.items[0], expert]:
            aside[skipped] = heap.items[0]
            skipped += 1
            size = drop_top(heap, size)
        if size > 0:
            gpu = heap.items[0]
            _lay(layer, packing, gpu, expert)
            if _free(layer, packing, gpu) > 0:
                replace_top(heap, size, _need(layer, packing, gpu), gpu)
            else:
                size = drop_top(heap, size)
        elif not _laid_by_swap(layer, packing, aside[:skipped], expert):
            _pack_by_room(layer, copies, packing)
            break
        for gpu in aside[:skipped]:
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
def _laid_by_swap(layer: Layer, packing: Packing, with_room: Ints, expert: int) -> bool:
    """Move some copy from a full GPU to one with a free slot and put `expert` in its place; False if impossible."""
    for full in range(len(layer.shares)):
        if layer.holds[full, expert] or _free(layer, packing, full) > 0:
            continue
        for place in range(layer.first[full], layer.first[full + 1]):
            moved = layer.expert_at[place]
            for gpu in with_room:
                if not layer.holds[gpu, moved]:
                    _lay(layer, packing, gpu, moved)
                    layer.expert_at[place] = expert
                    layer.holds[full, moved], layer.holds[full, expert] = False, True
                    layer.carried[full] += layer.each[expert] - layer.each[moved]
                    return True
    return False


@jit_inner
def _pack_by_room(layer: Layer, copies: Ints, packing: Packing) -> None:
    """Each expert's copies to the GPUs with most free slots; always possible for counts of `replicate`."""
    size, at = 0, 0
    _clear(layer, packing)
    for gpu in range(len(layer.shares)):
        size = push(packing.heap, size, float(_free(layer, packing, gpu)), gpu)
    while at < len(copies):
        expert = copies[at]
        taken = packing.aside[: layer.counts[expert]]
        for k in range(len(taken)):
            taken[k] = packing.heap.items[0]
            size = drop_top(packing.heap, size)
        for gpu in taken:
            _lay(layer, packing, gpu, expert)
            if _free(layer, packing, gpu) > 0:
                size = push(packing.heap, size, float(_free(layer, packing, gpu)), gpu)
        at += len(taken)
