"""Maps whose SGLang draws are even: first the nodes of copies, then the packing of each node.

Nodes.  The draws for an expert follow from the nodes of its copies and from all draws before it.  A plan can therefore
choose nodes whose draw gives every copy as many GPUs as equal shares would.  The whole numbers then agree with the
rule's averages, and the plan is even under both.  Experts are processed in the engine's order, layer by layer.  A copy
moves to another node by a swap with the single copy of another expert, for which nothing is drawn, the nearest in load.

Packing, with a fixed load per copy: as placed and packed again, whichever is better.  It changes no draw of the engine.
A copy alone on its node stays there; copies that share a node stay in their slots; single copies go anywhere.  The
largest copy goes first, to the least loaded GPU that is allowed, with slots reserved for those that must stay on their
node.
"""

from typing import NamedTuple

import numpy as np
from numba import float64, int64, uint64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints
from placement.dispatch import LAYOUT, slots_of_experts
from placement.layout import LayoutArrays
from placement.nearest.search import even_out
from placement.nearest.sglang_dispatch import Table, Words, choose
from placement.nearest.state import Instance, Layer, busiest_of, empty_layer, falling, on_node, put

ENOUGH = 0.6  # GPUs more or fewer than equal shares, for the worst copy
MAX_OFF = 0.3  # of a copy's load: its swap partner must be about as heavy, or the node gets too much or too little
PASSES = 3  # from the best nodes so far, one copy moved at a time
ANYWHERE, NODE, SLOT = 0, 1, 2  # the places that a copy may take


class Row(NamedTuple):
    expert_of_slot: Ints
    copies: Ints  # [experts]
    weights: Floats  # [experts]: tokens of each copy


@jit_inner
def _unevenness(slots: Ints, table: Table) -> float:
    """The GPUs by which the worst copy is off an equal share, in the next draw."""
    chosen = np.empty(len(table.node_of_gpu), np.int64)
    trial = Table(table.gpu_of_slot, table.node_of_gpu, table.words, table.cursors.copy())
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
def _nearest_single(row: Row, table: Table, node: int, weight: float) -> int:
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
                there = _nearest_single(row, table, node, row.weights[row.expert_of_slot[slots[0]]])
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


@jit_entry(int64[:, ::1](int64[:, ::1], float64[:, ::1], LAYOUT, uint64[::1]))
def assign_nodes(expert_of_slot: Ints, tokens: Floats, layout: LayoutArrays, words: Words) -> Ints:
    """[layers, slots]; [0, 0] is -1 where the generator's output is too short.  Layers without tokens stay."""
    layers, experts = tokens.shape
    gpu_of_slot, node_of_gpu, _, _ = layout
    found = expert_of_slot.copy()
    table = Table(gpu_of_slot, node_of_gpu, words, np.zeros(len(node_of_gpu), np.int64))
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


class FreeSlots(NamedTuple):
    free: Ints  # [GPUs]
    unclaimed: Ints  # [nodes]: free slots without the ones reserved for copies that must stay on the node


@jit_inner
def repacked(old: Layer, instance: Instance) -> Layer:
    """The same copies with the same loads, packed again."""
    layer, bound = empty_layer(instance), _bounds(old, instance)
    capacity = _free_slots(instance, bound)
    for slot in range(len(bound)):
        if bound[slot] == SLOT:
            _lay(layer, instance, old.expert_of_slot[slot], slot, old.weights[slot])
    for slot in falling(old.weights):
        if bound[slot] == SLOT:
            continue
        node = instance.node_of_gpu[instance.gpu_of_slot[slot]] if bound[slot] == NODE else -1
        gpu = _least_busy(layer, instance, capacity, node, old.weights[slot])
        into = instance.first_slot[gpu]
        while layer.expert_of_slot[into] >= 0:
            into += 1
        _lay(layer, instance, old.expert_of_slot[slot], into, old.weights[slot])
        capacity.free[gpu] -= 1
        if node < 0:
            capacity.unclaimed[instance.node_of_gpu[gpu]] -= 1
    return layer


@jit_inner
def _bounds(old: Layer, instance: Instance) -> Ints:
    bound = np.empty(len(old.weights), np.int64)
    for slot in range(len(bound)):
        expert = old.expert_of_slot[slot]
        alone = on_node(old, instance, expert, instance.node_of_gpu[instance.gpu_of_slot[slot]]) == 1
        bound[slot] = ANYWHERE if old.copies[expert] == 1 else NODE if alone else SLOT
    return bound


@jit_inner
def _free_slots(instance: Instance, bound: Ints) -> FreeSlots:
    gpus = len(instance.node_of_gpu)
    capacity = FreeSlots(np.zeros(gpus, np.int64), np.zeros(instance.node_of_gpu[-1] + 1, np.int64))
    for slot in range(len(bound)):
        gpu = instance.gpu_of_slot[slot]
        capacity.free[gpu] += bound[slot] != SLOT
        capacity.unclaimed[instance.node_of_gpu[gpu]] += bound[slot] == ANYWHERE
    return capacity


@jit_inner
def _lay(layer: Layer, instance: Instance, expert: int, into: int, weight: float) -> None:
    put(layer, expert, into)
    layer.weights[into] = weight
    layer.loads[instance.gpu_of_slot[into]] += weight


@jit_inner
def _least_busy(layer: Layer, instance: Instance, capacity: FreeSlots, node: int, weight: float) -> int:
    """The least loaded GPU of a node, or with -1 of any node with unreserved slots."""
    best, best_busy = -1, np.inf
    for gpu in range(len(capacity.free)):
        here = instance.node_of_gpu[gpu]
        allowed = capacity.unclaimed[here] > 0 if node < 0 else here == node
        busy = (layer.loads[gpu] + weight) / instance.even[gpu]
        if allowed and capacity.free[gpu] > 0 and busy < best_busy:
            best, best_busy = gpu, busy
    return best


@jit_inner
def _given(instance: Instance, start: Ints, weights: Floats) -> Layer:
    layer = empty_layer(instance)
    for slot in range(len(start)):
        _lay(layer, instance, start[slot], slot, weights[slot])
    return layer


@jit_entry(int64[:, ::1](float64[:, ::1], int64[:, ::1], float64[:, ::1], LAYOUT))
def rebalance(tokens: Floats, start: Ints, weights: Floats, layout: LayoutArrays) -> Ints:
    """[layers, slots], from a placement with the load of each copy; layers without tokens stay unchanged."""
    gpu_of_slot, node_of_gpu, first_slot, shares = layout
    found = start.copy()
    for row in range(len(tokens)):
        total = tokens[row].sum()
        if total == 0:
            continue
        may_change_node = False  # the draws for a copy are valid while it stays on its node
        instance = Instance(gpu_of_slot, node_of_gpu, first_slot, may_change_node, tokens[row], shares * total)
        layer = _given(instance, start[row], weights[row])
        other = repacked(layer, instance)
        even_out(layer, instance)
        even_out(other, instance)
        better = other if busiest_of(other, instance) < busiest_of(layer, instance) else layer
        for slot in range(len(gpu_of_slot)):  # one by one: it compiles faster than a copy of arrays
            found[row, slot] = better.expert_of_slot[slot]
    return found
