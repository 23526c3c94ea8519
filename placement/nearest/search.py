"""Local search on the most loaded GPU: swap two slots, else give a slot to another expert.

A swap is plain when it changes the shares of neither expert: of a single copy, of a copy alone on its node that stays
there or goes to another node of the same size without one, or of any copy that stays on a node that holds them all.
Plain swaps change two numbers, so all of them are evaluated and the best is made.  Only where none helps are the others
tried, each by making it.

On equal nodes no move puts two copies of an expert on one node while it has no more copies than there are nodes.  Then
every copy's share is plain, and it does not matter which of several copies on a node an engine would take.

`spread_copies` moves copies of one expert that share a node to different nodes: such a copy swaps with a copy on a node
without one, whose expert is not on the first node, the nearest in load.  Every swap leaves fewer pairs.  With equal
nodes and slots, and no expert with more copies than there are nodes, none is left: the node with the fewest different
experts always allows a swap.
"""

import numpy as np

from fleet.numba_cache import jit_inner
from placement.nearest.state import (
    Instance,
    Layer,
    apart,
    fullest,
    may_move,
    on_gpu,
    on_node,
    put,
    reshare,
    spread,
    take,
)

MIN_GAIN = 1e-9  # of a GPU's even load; less is rounding
TOLERANCE = 2e-4  # of the maximum load over even: loads of the next window differ by far more
ROUNDS = 2000  # per layer; measured cases end within 200
NEAR = 2e-3  # over even: nearer than this only plain swaps are tried


@jit_inner
def _is_plain(layer: Layer, instance: Instance, slot: int, gpu: int) -> bool:
    """Whether the copy in a slot can go to a GPU without a change of shares."""
    expert, node = layer.expert_of_slot[slot], instance.node_of_gpu[gpu]
    if layer.copies[expert] == 1:
        return True
    here = instance.node_of_gpu[instance.gpu_of_slot[slot]]
    beside = on_node(layer, instance, expert, here)
    if beside == 1:
        return node == here or (instance.may_change_node and on_node(layer, instance, expert, node) == 0)
    all_here = beside == layer.copies[expert]
    return instance.may_change_node and all_here and node == here and not on_gpu(layer, instance, expert, gpu)


@jit_inner
def _exchange(layer: Layer, instance: Instance, slot: int, other: int) -> None:
    """Make a plain swap: each copy keeps its load."""
    weight, other_weight = layer.weights[slot], layer.weights[other]
    _trade(layer, instance, slot, other)
    layer.weights[slot], layer.weights[other] = other_weight, weight
    layer.loads[instance.gpu_of_slot[slot]] += other_weight
    layer.loads[instance.gpu_of_slot[other]] += weight


@jit_inner
def _swapped_plainly(layer: Layer, instance: Instance, gpu: int) -> bool:
    """Make the plain swap with the lowest greater load of its two GPUs."""
    even, load = instance.even[gpu], layer.loads[gpu]
    best, best_slot, best_other = load / even - MIN_GAIN, -1, -1
    for other_gpu in range(len(layer.loads)):
        other_even, other_load = instance.even[other_gpu], layer.loads[other_gpu]
        least, most = load - best * even, best * other_even - other_load  # tokens to move
        if least >= most:
            continue
        for slot in range(instance.first_slot[gpu], instance.first_slot[gpu + 1]):
            for other in range(instance.first_slot[other_gpu], instance.first_slot[other_gpu + 1]):
                moved = layer.weights[slot] - layer.weights[other]
                if (
                    least < moved < most
                    and _is_plain(layer, instance, slot, other_gpu)
                    and _is_plain(layer, instance, other, gpu)
                ):
                    best = max((load - moved) / even, (other_load + moved) / other_even)
                    best_slot, best_other = slot, other
                    least, most = load - best * even, best * other_even - other_load
    if best_slot < 0:
        return False
    _exchange(layer, instance, best_slot, best_other)
    return True


@jit_inner
def _swapped(layer: Layer, instance: Instance, gpu: int) -> bool:
    """Make the first swap of any kind that helps."""
    for slot in range(instance.first_slot[gpu], instance.first_slot[gpu + 1]):
        for other in range(len(layer.weights)):
            expert, there = layer.expert_of_slot[slot], layer.expert_of_slot[other]
            other_gpu = instance.gpu_of_slot[other]
            if layer.weights[other] >= layer.weights[slot] or layer.copies[expert] + layer.copies[there] == 2:
                continue
            if not (may_move(layer, instance, slot, other_gpu) and may_move(layer, instance, other, gpu)):
                continue
            before, busy = spread(layer, instance), layer.loads[gpu] / instance.even[gpu]
            swap(layer, instance, slot, other)
            if _is_better(layer, instance, before, busy):
                return True
            swap(layer, instance, slot, other)
    return False


@jit_inner
def swap(layer: Layer, instance: Instance, slot: int, other: int) -> None:
    expert, there = _trade(layer, instance, slot, other)
    reshare(layer, instance, expert)
    reshare(layer, instance, there)


@jit_inner
def _trade(layer: Layer, instance: Instance, slot: int, other: int) -> tuple[int, int]:
    """Swap two copies without their loads; returns the experts that were in the slots."""
    expert, there = layer.expert_of_slot[slot], layer.expert_of_slot[other]
    take(layer, instance, slot)
    take(layer, instance, other)
    put(layer, expert, other)
    put(layer, there, slot)
    return expert, there


@jit_inner
def _given(layer: Layer, instance: Instance, gpu: int) -> bool:
    """Give the slot of a spare copy to another expert: on this GPU to a lighter one, elsewhere to one of this GPU."""
    experts = len(layer.copies)
    for slot in range(instance.first_slot[gpu], instance.first_slot[gpu + 1]):
        expert = layer.expert_of_slot[slot]
        if layer.copies[expert] > 1:
            for taker in range(experts):
                if instance.tokens[taker] < layer.weights[slot] * (layer.copies[taker] + 1) and _gave(
                    layer, instance, slot, taker, gpu
                ):
                    return True
        for other in range(len(layer.weights)):
            if layer.copies[layer.expert_of_slot[other]] > 1 and _gave(layer, instance, other, expert, gpu):
                return True
    return False


@jit_inner
def _gave(layer: Layer, instance: Instance, slot: int, taker: int, gpu: int) -> bool:
    """Give the slot and keep the change if it helps the most loaded GPU."""
    if not may_give(layer, instance, slot, taker):
        return False
    giver = layer.expert_of_slot[slot]
    before, busy = spread(layer, instance), layer.loads[gpu] / instance.even[gpu]
    give(layer, instance, slot, giver, taker)
    if _is_better(layer, instance, before, busy):
        return True
    give(layer, instance, slot, taker, giver)
    return False


@jit_inner
def may_give(layer: Layer, instance: Instance, slot: int, taker: int) -> bool:
    """Whether the slot of an expert with spare copies may go to the taker, by the rule of `may_move`."""
    giver, gpu, most = layer.expert_of_slot[slot], instance.gpu_of_slot[slot], apart(instance)
    node = instance.node_of_gpu[gpu]
    if on_gpu(layer, instance, taker, gpu):
        return False
    must_share = layer.copies[taker] >= most and len(layer.weights) > len(layer.copies) * most
    if not must_share and on_node(layer, instance, taker, node) > 0:
        return False
    if layer.copies[giver] != most + 1:
        return True
    left = True  # one on every node
    for other in range(most):
        left &= on_node(layer, instance, giver, other) - (other == node) == 1
    return left


@jit_inner
def give(layer: Layer, instance: Instance, slot: int, giver: int, taker: int) -> None:
    take(layer, instance, slot)
    put(layer, taker, slot)
    reshare(layer, instance, giver)
    reshare(layer, instance, taker)


@jit_inner
def _is_better(layer: Layer, instance: Instance, before: float, busy: float) -> bool:
    """Whether all GPUs are below the old maximum, or the maximum is equal and the loads are more even."""
    gpu = fullest(layer, instance)
    now = layer.loads[gpu] / instance.even[gpu]
    if now < busy - MIN_GAIN:
        return True
    return now <= busy and spread(layer, instance) < before * (1.0 - MIN_GAIN)


@jit_inner
def even_out(layer: Layer, instance: Instance) -> None:
    """Improve by plain swaps only: every copy keeps its load."""
    for _ in range(ROUNDS):
        gpu = fullest(layer, instance)
        if layer.loads[gpu] <= instance.even[gpu] * (1.0 + TOLERANCE) or not _swapped_plainly(layer, instance, gpu):
            return


@jit_inner
def improve(layer: Layer, instance: Instance) -> None:
    """Improve until the most loaded GPU is within `TOLERANCE` of even, or no move helps."""
    for _ in range(ROUNDS):
        gpu = fullest(layer, instance)
        busy = layer.loads[gpu] / instance.even[gpu]
        if busy <= 1.0 + TOLERANCE:
            return
        if _swapped_plainly(layer, instance, gpu):
            continue
        if busy <= 1.0 + NEAR or not (_swapped(layer, instance, gpu) or _given(layer, instance, gpu)):
            return


@jit_inner
def spread_copies(layer: Layer, instance: Instance) -> bool:
    """Spread until no copy can move; returns whether no copies share a node unnecessarily."""
    moved, parted = True, False
    while moved:
        moved, parted = False, True
        for slot in range(len(layer.weights)):
            if _is_crowded(layer, instance, slot):
                other = _exchange_for(layer, instance, slot)
                if other >= 0:
                    swap(layer, instance, slot, other)
                    moved = True
                else:
                    parted = False
    return parted


@jit_inner
def _is_crowded(layer: Layer, instance: Instance, slot: int) -> bool:
    """Whether another copy shares the node unnecessarily."""
    expert, node = layer.expert_of_slot[slot], instance.node_of_gpu[instance.gpu_of_slot[slot]]
    return 1 < layer.copies[expert] <= apart(instance) and on_node(layer, instance, expert, node) > 1


@jit_inner
def _exchange_for(layer: Layer, instance: Instance, slot: int) -> int:
    """The slot to swap with, or -1."""
    expert, here = layer.expert_of_slot[slot], instance.node_of_gpu[instance.gpu_of_slot[slot]]
    best, best_off = -1, np.inf
    for other in range(len(layer.weights)):
        node = instance.node_of_gpu[instance.gpu_of_slot[other]]
        off = abs(layer.weights[other] - layer.weights[slot])
        if (
            off < best_off
            and on_node(layer, instance, expert, node) == 0
            and on_node(layer, instance, layer.expert_of_slot[other], here) == 0
        ):
            best, best_off = other, off
    return best
