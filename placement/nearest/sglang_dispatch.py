"""The copy to which each GPU sends an expert's tokens, as SGLang 0.5.23 decides when it loads a map.

`static` dispatch is a table [GPUs, layers, experts] of slots, made once (`expert_location.py`).  Every GPU makes its
own row.  It first reduces each expert to the nearest copy where there is one.  It then goes through layers and experts
in order and, for each expert with several copies left, deals the copies to the far GPUs: each copy as often as whole
numbers allow, the rest a sample, all shuffled (`placement.nearest.sglang_rng`).  From the result it reads its own
entry.

Each GPU draws only for experts far from it, so GPUs of different nodes read different shuffles, and the counts are not
even: with two copies, 4 nodes and 8 GPUs on each, the share of a copy is off by 1.5 GPUs of 32 (standard deviation),
with 9 nodes by 3.5 of 72.

A map from the engine's own rebalance is not reduced to the nearest copies: then all GPUs read the same shuffles
(`together`) and shares are as even as whole numbers allow.

Near is a copy on the GPU itself, else the first on its node, by slot, unless all copies lie there.

Compiled on import: import it late.
"""

from typing import NamedTuple

import numpy as np
from numba import boolean, int64, uint64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Ints
from placement.nearest.sglang_rng import Words, sample, shuffle


class Table(NamedTuple):
    """The generator's output and the cursor of each GPU."""

    gpu_of_slot: Ints
    node_of_gpu: Ints
    words: Words
    cursors: Ints  # [GPUs]
    together: bool  # whether GPUs also draw for near experts


@jit_inner
def choose(copies: Ints, table: Table, found: Ints) -> None:
    """[GPUs]: the slot to which each sends one expert's tokens; `copies`, rising, are the expert's slots."""
    gpus, far = len(found), 0
    for gpu in range(gpus):
        found[gpu] = _near(copies, table, gpu)
        far += found[gpu] < 0
    if far == 0:
        return
    place, before, after = 0, -1, -1
    dealt = np.empty(far, np.int64)
    for gpu in range(gpus):
        if found[gpu] >= 0:
            continue
        if table.cursors[gpu] != before:  # GPUs with equal cursors draw the same numbers
            before = table.cursors[gpu]
            after = _deal(copies, table.words, before, dealt)
        table.cursors[gpu] = after
        found[gpu] = dealt[place]
        place += 1
    if table.together:
        table.cursors[:] = after


@jit_inner
def _near(copies: Ints, table: Table, gpu: int) -> int:
    """The near copy, for which a GPU does not draw, or -1."""
    if len(copies) == 1:
        return int(copies[0])
    first, there = -1, 0
    for slot in copies:
        owner = table.gpu_of_slot[slot]
        if owner == gpu:
            return int(slot)
        if table.node_of_gpu[owner] == table.node_of_gpu[gpu]:
            there += 1
            if first < 0:
                first = slot
    return first if there < len(copies) else -1


@jit_inner
def _deal(copies: Ints, words: Words, cursor: int, dealt: Ints) -> int:
    """One copy for each far GPU; returns the new cursor."""
    even = len(dealt) // len(copies) * len(copies)
    for i in range(even):
        dealt[i] = copies[i % len(copies)]
    cursor = sample(words, cursor, copies, len(dealt) - even, dealt[even:])
    return shuffle(words, cursor, dealt)


@jit_inner
def slots_of_experts(row: Ints, first: Ints, slots: Ints) -> None:
    """The slots of one layer by expert: expert e is in slots[first[e] : first[e + 1]], rising."""
    first[:] = 0
    for expert in row:
        first[expert + 1] += 1
    for expert in range(len(first) - 1):
        first[expert + 1] += first[expert]
    filled = first.copy()
    for slot in range(len(row)):
        slots[filled[row[slot]]] = slot
        filled[row[slot]] += 1


@jit_entry(int64[:, :, ::1](int64[:, ::1], int64[::1], int64[::1], int64, uint64[::1], boolean))
def choose_slots(  # noqa: PLR0917 - compiled code takes no keywords
    expert_of_slot: Ints,
    gpu_of_slot: Ints,
    node_of_gpu: Ints,
    experts: int,
    words: Words,
    together: bool,  # noqa: FBT001
) -> Ints:
    """[layers, experts, GPUs]: slots; [0, 0, 0] is -1 where the generator's output did not suffice."""
    layers = len(expert_of_slot)
    found = np.empty((layers, experts, len(node_of_gpu)), np.int64)
    table = Table(gpu_of_slot, node_of_gpu, words, np.zeros(len(node_of_gpu), np.int64), together)
    first, slots = np.empty(experts + 1, np.int64), np.empty(len(gpu_of_slot), np.int64)
    for layer in range(layers):
        slots_of_experts(expert_of_slot[layer], first, slots)
        for expert in range(experts):
            choose(slots[first[expert] : first[expert + 1]], table, found[layer, expert])
    if table.cursors.max() > len(words):
        found[0, 0, 0] = -1
    return found
