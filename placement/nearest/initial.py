"""An initial plan for rule `nearest`: replica counts, and places with copies of one expert on different nodes.

docs/explanation/placement/dispatch.md has the shares of copies on different nodes, for which no expert gets more copies
than there are nodes while others can.  With one copy, or one on every node, no GPU draws.  For numbers in between
SGLang's far GPUs draw (`sglang_dispatch`), and the draws are even on average only.  Counts, where nodes are equal:

1. As few copies of each expert as keep each copy under a given part of a GPU's even load.
2. One more, repeatedly, for the expert with several where that lowers the variance of the draws most.  The variance is
   small from one node less than all: the GPUs of a node draw from one shuffle, which is as even as whole numbers allow.
3. One on every node for others, hottest first, while slots are left for that.
4. The rest to the coldest experts, where it does no harm.

Where these do not fit, and where nodes differ: one more, repeatedly, for the expert with the most tokens per copy; more
than one per node only when all have that.

The largest copy goes first, to the least loaded GPU (LPT).  Where no slot is then legal, copies are dealt one by one.
Where GPUs differ, every expert is placed once and the remaining slots take any legal copy.
"""

import math

import numpy as np

from fleet.numba_cache import jit_inner
from placement.arrays import Floats, Ints
from placement.nearest.search import spread_copies
from placement.nearest.state import Instance, Layer, apart, empty_layer, falling, on_gpu, on_node, put, reshare


@jit_inner
def counts_of(instance: Instance, heaviest: float) -> Ints:
    """[experts]; a copy should have at most `heaviest` of a GPU's even load, where that is above 0."""
    slots, gpus = len(instance.gpu_of_slot), len(instance.node_of_gpu)
    if heaviest > 0.0 and apart(instance) > 2:
        counts = _few_drawn(instance, slots, apart(instance), heaviest)
        if counts.sum() == slots:
            return counts
    return _greedy(instance.tokens, slots, instance.node_of_gpu[gpus - 1] + 1, gpus)


@jit_inner
def _few_drawn(instance: Instance, slots: int, nodes: int, heaviest: float) -> Ints:
    """The counts of steps 1 to 4; their sum is not `slots` where they do not fit."""
    most = heaviest * instance.even.min()
    counts = np.ones(len(instance.tokens), np.int64)
    for expert in range(len(counts)):
        counts[expert] = min(nodes, max(1, math.ceil(instance.tokens[expert] / most)))
    spare = slots - counts.sum()
    while spare > 0:
        expert = _most_off(instance, counts, nodes)
        if expert < 0:
            break
        counts[expert] += 1
        spare -= 1
    order = falling(instance.tokens)
    for expert in order:
        if counts[expert] == 1 and nodes - 1 <= spare:
            counts[expert] = nodes
            spare -= nodes - 1
    for expert in order[::-1]:
        lacking = max(0, min(spare, nodes - counts[expert]))
        counts[expert] += lacking
        spare -= lacking
    return counts


@jit_inner
def _most_off(instance: Instance, counts: Ints, nodes: int) -> int:
    """The expert with several copies for which one more lowers the variance of the draws most, or -1."""
    gpus = len(instance.node_of_gpu) // nodes
    best, most = -1, 0.0
    for expert in range(len(counts)):
        if 1 < counts[expert] < nodes:
            before, after = _variance(counts[expert], nodes, gpus), _variance(counts[expert] + 1, nodes, gpus)
            gain = instance.tokens[expert] * instance.tokens[expert] * (before - after)
            if gain > most:
                best, most = expert, gain
    return best


@jit_inner
def _variance(copies: int, nodes: int, gpus: int) -> float:
    """The variance of a copy's far GPUs: each node without a copy reads a part of its own shuffle (hypergeometric)."""
    far = (nodes - copies) * gpus
    if far <= gpus:  # one shuffle at most: copies get equally many, or one more
        rest = far % copies / copies
        return rest * (1.0 - rest)
    return (nodes - copies) * gpus / copies * (1.0 - 1.0 / copies) * (far - gpus) / (far - 1.0)


@jit_inner
def _greedy(tokens: Floats, slots: int, nodes: int, gpus: int) -> Ints:
    counts = np.ones(len(tokens), np.int64)
    most = nodes
    for _ in range(slots - len(tokens)):
        best = -1
        while best < 0:
            for expert in range(len(tokens)):
                if counts[expert] < most and (
                    best < 0 or tokens[expert] * counts[best] > tokens[best] * counts[expert]
                ):
                    best = expert
            if best < 0:
                most = gpus
        counts[best] += 1
    return counts


@jit_inner
def initial_placement(instance: Instance, heaviest: float) -> Layer:
    """A legal plan, with all shares computed."""
    gpus, counts = len(instance.node_of_gpu), counts_of(instance, heaviest)
    layer = empty_layer(instance)
    free = np.empty(gpus, np.int64)
    for gpu in range(gpus):
        free[gpu] = instance.first_slot[gpu + 1] - instance.first_slot[gpu]
    is_legal = _laid_by_weight(layer, instance, counts, free.copy())
    if is_legal:
        _share(layer, instance)
        is_legal = spread_copies(layer, instance) or free.min() < free.max()
    if not is_legal:
        layer = empty_layer(instance)
        if instance.may_change_node and free.min() == free.max():
            _dealt(layer, instance, counts)
        else:
            _laid_legally(layer, instance)
        _share(layer, instance)
    return layer


@jit_inner
def _share(layer: Layer, instance: Instance) -> None:
    layer.loads[:] = 0.0
    for expert in range(len(instance.tokens)):
        reshare(layer, instance, expert)


@jit_inner
def _dealt(layer: Layer, instance: Instance, counts: Ints) -> None:
    """For equal slots: from node to node, on each from GPU to GPU; copies share a node only when necessary."""
    gpus, nodes, at = len(instance.node_of_gpu), apart(instance), 0
    for expert in range(len(counts)):
        for _ in range(counts[expert]):
            gpu = at % nodes * (gpus // nodes) + at // nodes % (gpus // nodes)
            put(layer, expert, instance.first_slot[gpu] + at // gpus)
            at += 1


@jit_inner
def _laid_by_weight(layer: Layer, instance: Instance, counts: Ints, free: Ints) -> bool:
    """Largest copies first; returns whether each found a slot."""
    for expert in falling(instance.tokens / counts):
        tokens = instance.tokens[expert] / counts[expert]
        for _ in range(counts[expert]):
            gpu = _least_busy(layer, instance, expert, tokens, free)
            if gpu < 0:
                return False
            free[gpu] -= 1
            put(layer, expert, instance.first_slot[gpu] + free[gpu])
            layer.loads[gpu] += tokens
    return True


@jit_inner
def _least_busy(layer: Layer, instance: Instance, expert: int, tokens: float, free: Ints) -> int:
    """The least loaded legal GPU: on a node without a copy if any has a free slot, else any GPU without one."""
    best, best_apart, best_busy = -1, False, np.inf
    for gpu in range(len(free)):
        if free[gpu] == 0:
            continue
        busy = (layer.loads[gpu] + tokens) / instance.even[gpu]
        if best_apart and busy >= best_busy:
            continue
        apart = on_node(layer, instance, expert, instance.node_of_gpu[gpu]) == 0
        if apart == best_apart and busy >= best_busy:
            continue
        if apart >= best_apart and (apart or not on_gpu(layer, instance, expert, gpu)):
            best, best_apart, best_busy = gpu, apart, busy
    return best


@jit_inner
def _laid_legally(layer: Layer, instance: Instance) -> None:
    """Always ends: no GPU has more slots than there are experts."""
    experts = len(instance.tokens)
    for expert in range(experts):
        put(layer, expert, expert)
    for slot in range(experts, len(instance.gpu_of_slot)):
        best = -1
        for expert in range(experts):
            if on_gpu(layer, instance, expert, instance.gpu_of_slot[slot]):
                continue
            if best < 0 or instance.tokens[expert] * layer.copies[best] > instance.tokens[best] * layer.copies[expert]:
                best = expert
        put(layer, best, slot)
