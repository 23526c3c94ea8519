"""A new packing of a layer with a fixed load per copy, which changes no draw of the engine.

A copy alone on its node stays there; copies that share a node stay in their slots; single copies go anywhere.  The
largest copy goes first, to the least loaded GPU that is allowed, with slots reserved for those that must stay on their
node.
"""

from typing import NamedTuple

import numpy as np

from fleet.numba_cache import jit_inner
from placement.arrays import Ints
from placement.nearest.state import Instance, Layer, empty_layer, falling, on_node, put

ANYWHERE, NODE, SLOT = 0, 1, 2  # the places that a copy may take


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
            _lay(layer, instance, old, slot, slot)
    for slot in falling(old.weights):
        if bound[slot] == SLOT:
            continue
        node = instance.node_of_gpu[instance.gpu_of_slot[slot]] if bound[slot] == NODE else -1
        gpu = _least_busy(layer, instance, capacity, node, old.weights[slot])
        into = instance.first_slot[gpu]
        while layer.expert_of_slot[into] >= 0:
            into += 1
        _lay(layer, instance, old, slot, into)
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
def _lay(layer: Layer, instance: Instance, old: Layer, slot: int, into: int) -> None:
    put(layer, old.expert_of_slot[slot], into)
    layer.weights[into] = old.weights[slot]
    layer.loads[instance.gpu_of_slot[into]] += old.weights[slot]


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
