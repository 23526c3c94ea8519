"""An initial plan for rule `nearest`: places for the counts, with copies of one expert on different nodes.

With equal nodes and copies on different nodes, every copy receives the same share under the rule: its node's GPUs and
an equal part of the far ones, (m + (N - n) m / n) / (N m) = 1 / n for n copies, N nodes of m GPUs.  A second copy on a
node only receives its own GPU's tokens, 1 / (N m).  So no expert gets more copies than there are nodes while others
can.

The largest copy goes first, to the least loaded GPU (LPT).  Where no slot is then legal, copies are dealt one by one.
Where GPUs differ, every expert is placed once and the remaining slots take any legal copy.
"""

import numpy as np

from fleet.numba_cache import jit_inner
from placement.arrays import Ints
from placement.nearest.counts import counts_of
from placement.nearest.node_spread import spread_copies
from placement.nearest.state import Instance, Layer, apart, empty_layer, falling, on_gpu, on_node, put, reshare


@jit_inner
def initial_placement(instance: Instance, heaviest: float) -> Layer:
    """A legal plan, with all shares computed."""
    gpus, counts = len(instance.node_of_gpu), counts_of(instance, heaviest)
    layer = empty_layer(instance)
    free = np.empty(gpus, np.int64)
    for gpu in range(gpus):
        free[gpu] = instance.first_slot[gpu + 1] - instance.first_slot[gpu]
    may_stand = _laid_by_weight(layer, instance, counts, free.copy())
    if may_stand:
        _share(layer, instance)
        may_stand = spread_copies(layer, instance) or free.min() < free.max()
    if not may_stand:
        layer = empty_layer(instance)
        if instance.roams and free.min() == free.max():
            _dealt(layer, instance, counts)
        else:
            _laid_anyhow(layer, instance)
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
def _laid_anyhow(layer: Layer, instance: Instance) -> None:
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
