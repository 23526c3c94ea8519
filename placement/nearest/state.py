"""The state of one layer during planning for rule `nearest`: places, load of each copy, load of each GPU.

A copy's share depends on the places of all copies of its expert (placement.dispatch), so a change of one slot changes
the load of other GPUs.  `reshare` is the only function that computes shares; all others move slots and call it.
"""

from typing import NamedTuple

import numpy as np

from fleet.numba_cache import jit_inner
from placement.arrays import Floats, Ints
from placement.dispatch import NEAREST, shares_of_copies


class Instance(NamedTuple):
    """The fixed part: the layout as arrays, and the loads of one layer."""

    gpu_of_slot: Ints
    node_of_gpu: Ints
    first_slot: Ints
    may_change_node: bool  # whether a copy alone on its node may go to any node without one and keep its share
    tokens: Floats  # [experts]
    even: Floats  # [GPUs]: even load of each


class Layer(NamedTuple):
    """The variable part."""

    expert_of_slot: Ints
    copies: Ints  # [experts]
    slots_of: Ints  # [experts, maximum copies]: rising, the first `copies` of each row
    weights: Floats  # [slots]: tokens of each copy
    loads: Floats  # [GPUs]


@jit_inner
def empty_layer(instance: Instance) -> Layer:
    slots, gpus, experts = len(instance.gpu_of_slot), len(instance.node_of_gpu), len(instance.tokens)
    return Layer(
        np.full(slots, -1),
        np.zeros(experts, np.int64),
        np.zeros((experts, gpus + 1), np.int64),
        np.zeros(slots),
        np.zeros(gpus),
    )


@jit_inner
def put(layer: Layer, expert: int, slot: int) -> None:
    row, at = layer.slots_of[expert], layer.copies[expert]
    while at > 0 and row[at - 1] > slot:
        row[at] = row[at - 1]
        at -= 1
    row[at] = slot
    layer.copies[expert] += 1
    layer.expert_of_slot[slot] = expert


@jit_inner
def take(layer: Layer, instance: Instance, slot: int) -> None:
    expert = layer.expert_of_slot[slot]
    row, last, at = layer.slots_of[expert], layer.copies[expert] - 1, 0
    while row[at] != slot:
        at += 1
    while at < last:
        row[at] = row[at + 1]
        at += 1
    layer.copies[expert] = last
    layer.loads[instance.gpu_of_slot[slot]] -= layer.weights[slot]
    layer.weights[slot] = 0.0
    layer.expert_of_slot[slot] = -1


@jit_inner
def reshare(layer: Layer, instance: Instance, expert: int) -> None:
    slots = layer.slots_of[expert, : layer.copies[expert]]
    shares = np.empty(len(slots))
    shares_of_copies(slots, instance.gpu_of_slot, instance.node_of_gpu, NEAREST, shares)
    for c in range(len(slots)):
        slot = slots[c]
        tokens = instance.tokens[expert] * shares[c]
        layer.loads[instance.gpu_of_slot[slot]] += tokens - layer.weights[slot]
        layer.weights[slot] = tokens


@jit_inner
def on_gpu(layer: Layer, instance: Instance, expert: int, gpu: int) -> bool:
    found = False
    for c in range(layer.copies[expert]):
        found |= instance.gpu_of_slot[layer.slots_of[expert, c]] == gpu
    return found


@jit_inner
def on_node(layer: Layer, instance: Instance, expert: int, node: int) -> int:
    found = 0
    for c in range(layer.copies[expert]):
        if instance.node_of_gpu[instance.gpu_of_slot[layer.slots_of[expert, c]]] == node:
            found += 1
    return found


@jit_inner
def apart(instance: Instance) -> int:
    """The maximum number of copies that must be on different nodes: the number of nodes where nodes are equal, else 0.

    With unequal nodes, copies that share a node can give useful shares.
    """
    return int(instance.node_of_gpu[-1]) + 1 if instance.may_change_node else 0


@jit_inner
def may_move(layer: Layer, instance: Instance, slot: int, gpu: int) -> bool:
    """Whether a copy may go to a GPU: the GPU has none, and no two copies meet on a node unnecessarily."""
    expert, node = layer.expert_of_slot[slot], instance.node_of_gpu[gpu]
    if on_gpu(layer, instance, expert, gpu):
        return False
    stays = node == instance.node_of_gpu[instance.gpu_of_slot[slot]]
    return stays or layer.copies[expert] > apart(instance) or on_node(layer, instance, expert, node) == 0


@jit_inner
def fullest(layer: Layer, instance: Instance) -> int:
    found = 0
    for gpu in range(1, len(layer.loads)):
        if layer.loads[gpu] * instance.even[found] > layer.loads[found] * instance.even[gpu]:
            found = gpu
    return found


@jit_inner
def busiest_of(layer: Layer, instance: Instance) -> float:
    """The load of the most loaded GPU over even."""
    gpu = fullest(layer, instance)
    return float(layer.loads[gpu] / instance.even[gpu])


@jit_inner
def spread(layer: Layer, instance: Instance) -> float:
    """The sum of squares of the relative loads, which falls with every step towards even loads."""
    total = 0.0
    for gpu in range(len(layer.loads)):
        total += layer.loads[gpu] * layer.loads[gpu] / instance.even[gpu]
    return total


@jit_inner
def falling(values: Floats) -> Ints:
    """Positions by falling value, the first of equals first.  numpy's sort takes seconds to compile."""
    order = np.empty(len(values), np.int64)
    for place in range(len(values)):
        at = place
        while at > 0 and values[order[at - 1]] < values[place]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = place
    return order
