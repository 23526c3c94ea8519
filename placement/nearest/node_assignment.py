"""The nodes of an expert's copies, chosen so that SGLang's draws for the far GPUs are even.

The draws for an expert follow from the nodes of its copies and from all draws before it.  A plan can therefore choose
nodes whose draw gives every copy as many GPUs as equal shares would.  The whole numbers then agree with the rule's
averages, and the plan is even under both.  Experts are processed in the engine's order, layer by layer.  A copy moves
to another node by a swap with the single copy of another expert, for which nothing is drawn, the nearest in load.

Compiled on import: import it late.
"""

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int64, uint64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints
from placement.nearest.sglang_dispatch import Table, choose, slots_of_experts
from placement.nearest.sglang_rng import Words

ENOUGH = 0.6  # GPUs more or fewer than equal shares, for the worst copy
MAX_OFF = 0.3  # of a copy's load: its swap partner must be about as heavy, or the node gets too much or too little
PASSES = 3  # from the best nodes so far, one copy moved at a time


class Row(NamedTuple):
    expert_of_slot: Ints
    copies: Ints  # [experts]
    weights: Floats  # [experts]: tokens of each copy


@jit_inner
def _unevenness(slots: Ints, table: Table) -> float:
    """The GPUs by which the worst copy is off an equal share, in the next draw."""
    chosen = np.empty(len(table.node_of_gpu), np.int64)
    trial = Table(table.gpu_of_slot, table.node_of_gpu, table.words, table.cursors.copy(), table.together)
    choose(slots, trial, chosen)
    worst, share = 0.0, len(chosen) / len(slots)
    for slot in slots:
        senders = 0
        for gpu in range(len(chosen)):
            senders += chosen[gpu] == slot
        worst = max(worst, abs(senders - share))
    return worst


@jit_inner
def _lies_on(slots: Ints, table: Table, node: int) -> bool:
    found = False
    for slot in slots:
        found |= table.node_of_gpu[table.gpu_of_slot[slot]] == node
    return found


@jit_inner
def _stand_in(row: Row, table: Table, node: int, weight: float) -> int:
    """The slot on a node with the single copy nearest in load, or -1 where none is near."""
    best, best_off = -1, weight * MAX_OFF
    for slot in range(len(row.expert_of_slot)):
        expert = row.expert_of_slot[slot]
        if row.copies[expert] == 1 and table.node_of_gpu[table.gpu_of_slot[slot]] == node:
            off = abs(row.weights[expert] - weight)
            if off < best_off:
                best, best_off = slot, off
    return best


@jit_inner
def _replaced(slots: Ints, at: int, slot: int) -> Ints:
    """Replace one of the slots by another; the order stays rising."""
    found = slots.copy()
    while at > 0 and found[at - 1] > slot:
        found[at] = found[at - 1]
        at -= 1
    while at + 1 < len(found) and found[at + 1] < slot:
        found[at] = found[at + 1]
        at += 1
    found[at] = slot
    return found


@jit_inner
def _evenly_drawn(slots: Ints, row: Row, table: Table) -> Ints:
    """The best slots of an expert's copies: one move at a time, until its draw is even or the passes end."""
    best, best_off = slots.copy(), _unevenness(slots, table)
    for _ in range(PASSES):
        start = best.copy()
        for moved in range(len(slots)):
            for node in range(table.node_of_gpu[-1] + 1):
                if best_off < ENOUGH:
                    return best
                if _lies_on(start, table, node):
                    continue
                there = _stand_in(row, table, node, row.weights[row.expert_of_slot[slots[0]]])
                if there < 0:
                    continue
                trial = _replaced(start, moved, there)
                off = _unevenness(trial, table)
                if off < best_off:
                    best, best_off = trial, off
    return best


@jit_inner
def _relay(expert_of_slot: Ints, slots: Ints, chosen: Ints) -> None:
    """Swap copies from the old slots with those in the new slots, both rising."""
    expert = expert_of_slot[slots[0]]
    for slot in chosen:
        if expert_of_slot[slot] == expert:
            continue
        for left in slots:
            kept = False
            for other in chosen:
                kept |= other == left
            if not kept and expert_of_slot[left] == expert:
                expert_of_slot[left], expert_of_slot[slot] = expert_of_slot[slot], expert
                break


@jit_entry(int64[:, ::1](int64[:, ::1], float64[:, ::1], int64[::1], int64[::1], uint64[::1], boolean))
def assign_nodes(  # noqa: PLR0917 - compiled code takes no keywords
    expert_of_slot: Ints,
    tokens: Floats,
    gpu_of_slot: Ints,
    node_of_gpu: Ints,
    words: Words,
    together: bool,  # noqa: FBT001
) -> Ints:
    """[layers, slots]; [0, 0] is -1 where the generator's output is too short.  Layers without tokens stay."""
    layers, experts = tokens.shape
    found = expert_of_slot.copy()
    table = Table(gpu_of_slot, node_of_gpu, words, np.zeros(len(node_of_gpu), np.int64), together)
    drawn = np.empty(len(node_of_gpu), np.int64)
    first, slots = np.empty(experts + 1, np.int64), np.empty(len(gpu_of_slot), np.int64)
    for layer in range(layers):
        slots_of_experts(found[layer], first, slots)  # of experts with several copies, valid until their turn
        copies = first[1:] - first[:-1]
        row = Row(found[layer], copies, tokens[layer] / copies)
        for expert in range(experts):
            lies_in = slots[first[expert] : first[expert + 1]]
            if copies[expert] > 1 and tokens[layer, expert] > 0:
                chosen = _evenly_drawn(lies_in, row, table)
                _relay(row.expert_of_slot, lies_in, chosen)
                lies_in = chosen
            choose(lies_in, table, drawn)
    if table.cursors.max() > len(words):
        found[0, 0] = -1
    return found
