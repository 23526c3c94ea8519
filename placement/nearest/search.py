"""Local search on the fullest GPU: swap two slots, else give a slot to another expert.

A swap is plain when neither expert's shares change by it: one of a single copy, or a copy alone on its node that stays
there or goes to another node of the same size without one, or any copy that stays on a node where all of them lie.
Plain swaps change two numbers, so all of them are looked at and the best is made.  Only where none helps are the others
tried, each by doing it and looking.

Where nodes are alike, no move lays two copies of an expert on one while it has no more copies than there are nodes.
Then every copy's share is plain, and it does not matter which of several copies on a node an engine would take.
"""

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
NEAR = 2e-3  # over even: nearer than this only plain swaps are tried


@jit_inner
def _is_plain(layer: Layer, instance: Instance, slot: int, gpu: int) -> bool:
    """Whether what lies in a slot can go to a GPU without any share changing."""
    expert, node = layer.expert_of_slot[slot], instance.node_of_gpu[gpu]
    if layer.copies[expert] == 1:
        return True
    here = instance.node_of_gpu[instance.gpu_of_slot[slot]]
    beside = on_node(layer, instance, expert, here)
    if beside == 1:
        return node == here or (instance.roams and on_node(layer, instance, expert, node) == 0)
    all_here = beside == layer.copies[expert]
    return instance.roams and all_here and node == here and not on_gpu(layer, instance, expert, gpu)


@jit_inner
def _exchange(layer: Layer, instance: Instance, slot: int, other: int) -> None:
    """A plain swap: each copy keeps its weight."""
    weight, other_weight = layer.weights[slot], layer.weights[other]
    expert, there = layer.expert_of_slot[slot], layer.expert_of_slot[other]
    take(layer, instance, slot)
    take(layer, instance, other)
    put(layer, expert, other)
    put(layer, there, slot)
    layer.weights[slot], layer.weights[other] = other_weight, weight
    layer.loads[instance.gpu_of_slot[slot]] += other_weight
    layer.loads[instance.gpu_of_slot[other]] += weight


@jit_inner
def _swapped_plainly(layer: Layer, instance: Instance, gpu: int) -> bool:
    """Make the plain swap that leaves the busier of its two GPUs least busy."""
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
            other_gpu, expert, there = (
                instance.gpu_of_slot[other],
                layer.expert_of_slot[slot],
                layer.expert_of_slot[other],
            )
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
    """What lies in two slots, whatever it does to shares."""
    expert, there = layer.expert_of_slot[slot], layer.expert_of_slot[other]
    take(layer, instance, slot)
    take(layer, instance, other)
    put(layer, expert, other)
    put(layer, there, slot)
    reshare(layer, instance, expert)
    reshare(layer, instance, there)


@jit_inner
def _given(layer: Layer, instance: Instance, gpu: int) -> bool:
    """Give one expert's spare copy's slot to another: here to a lighter one, or elsewhere to one that lies here."""
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
    """Whether the slot is the taker's now, because that helped the GPU that is fullest."""
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
    """Whether a slot of an expert with copies to spare may be the taker's, by the rule of `may_move`."""
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
    """The slot of one expert to another."""
    take(layer, instance, slot)
    put(layer, taker, slot)
    reshare(layer, instance, giver)
    reshare(layer, instance, taker)


@jit_inner
def _is_better(layer: Layer, instance: Instance, before: float, busy: float) -> bool:
    """All GPUs are below what the fullest was, or one is as full as that but the whole is more even."""
    gpu = fullest(layer, instance)
    now = layer.loads[gpu] / instance.even[gpu]
    if now < busy - MIN_GAIN:
        return True
    return now <= busy and spread(layer, instance) < before * (1.0 - MIN_GAIN)


@jit_inner
def even_out(layer: Layer, instance: Instance, tolerance: float, rounds: int) -> None:
    """By plain swaps only: every copy keeps its weight."""
    for _ in range(rounds):
        gpu = fullest(layer, instance)
        if layer.loads[gpu] <= instance.even[gpu] * (1.0 + tolerance) or not _swapped_plainly(layer, instance, gpu):
            return


@jit_inner
def improve(layer: Layer, instance: Instance, tolerance: float, rounds: int) -> None:
    """Until the fullest GPU is within `tolerance` of even, or nothing worth its time helps it any more."""
    for _ in range(rounds):
        gpu = fullest(layer, instance)
        busy = layer.loads[gpu] / instance.even[gpu]
        if busy <= 1.0 + tolerance:
            return
        if _swapped_plainly(layer, instance, gpu):
            continue
        if busy <= 1.0 + NEAR or not (_swapped(layer, instance, gpu) or _given(layer, instance, gpu)):
            return
