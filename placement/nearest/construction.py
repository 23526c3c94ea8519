"""A first plan for rule `nearest`: as many copies as equal split would take, no two of one expert on one node.

With nodes alike and copies on nodes of their own, every copy takes the same share under the rule: its node's GPUs and
an equal part of the far ones, (m + (N - n) m / n) / (N m) = 1 / n for n copies, N nodes of m GPUs.  A second copy on a
node takes only its own GPU's tokens, 1 / (N m).  So no expert gets more copies than there are nodes while others can.

Copies go largest first to the GPU that is least busy with them (LPT).  Where that ends with no slot allowed, every
expert is laid once and the slots left take whatever they may.
"""

import numpy as np

from fleet.compiled import part
from placement.arrays import Floats, Ints
from placement.nearest.state import Ground, Layer, empty_layer, falling, on_gpu, on_node, put, reshare


@part
def constructed(ground: Ground) -> Layer:
    """A plan that may stand, with all shares known."""
    slots, gpus = len(ground.gpu_of_slot), len(ground.node_of_gpu)
    counts = _counts(ground.tokens, slots, ground.node_of_gpu[gpus - 1] + 1, gpus)
    layer = empty_layer(ground)
    free = np.empty(gpus, np.int64)
    for gpu in range(gpus):
        free[gpu] = ground.first_slot[gpu + 1] - ground.first_slot[gpu]
    if not _laid_by_weight(layer, ground, counts, free):
        layer = empty_layer(ground)
        _laid_anyhow(layer, ground)
    layer.loads[:] = 0.0
    for expert in range(len(ground.tokens)):
        reshare(layer, ground, expert)
    return layer


@part
def _counts(tokens: Floats, slots: int, nodes: int, gpus: int) -> Ints:
    """Another copy always for the expert with the most tokens per copy; past one per node only when all have that."""
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


@part
def _laid_by_weight(layer: Layer, ground: Ground, counts: Ints, free: Ints) -> bool:
    """Largest copies first; whether each found a slot."""
    for expert in falling(ground.tokens / counts):
        tokens = ground.tokens[expert] / counts[expert]
        for _ in range(counts[expert]):
            gpu = _least_busy(layer, ground, expert, tokens, free)
            if gpu < 0:
                return False
            free[gpu] -= 1
            put(layer, expert, ground.first_slot[gpu] + free[gpu])
            layer.loads[gpu] += tokens
    return True


@part
def _least_busy(layer: Layer, ground: Ground, expert: int, tokens: float, free: Ints) -> int:
    """Where a copy may go: to a node without one if any has room, else to a GPU without one."""
    best, best_apart, best_busy = -1, False, np.inf
    for gpu in range(len(free)):
        if free[gpu] == 0:
            continue
        busy = (layer.loads[gpu] + tokens) / ground.even[gpu]
        if best_apart and busy >= best_busy:
            continue
        apart = on_node(layer, ground, expert, ground.node_of_gpu[gpu]) == 0
        if apart == best_apart and busy >= best_busy:
            continue
        if apart >= best_apart and (apart or not on_gpu(layer, ground, expert, gpu)):
            best, best_apart, best_busy = gpu, apart, busy
    return best


@part
def _laid_anyhow(layer: Layer, ground: Ground) -> None:
    """Always ends: no GPU has more slots than there are experts."""
    experts = len(ground.tokens)
    for expert in range(experts):
        put(layer, expert, expert)
    for slot in range(experts, len(ground.gpu_of_slot)):
        best = -1
        for expert in range(experts):
            if on_gpu(layer, ground, expert, ground.gpu_of_slot[slot]):
                continue
            if best < 0 or ground.tokens[expert] * layer.copies[best] > ground.tokens[best] * layer.copies[expert]:
                best = expert
        put(layer, best, slot)
