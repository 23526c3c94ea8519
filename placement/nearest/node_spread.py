"""Moves copies of one expert that share a node to different nodes.

A copy beside another swaps with a copy on a node without one, whose expert is not on the first node, the nearest in
load.  Every swap leaves fewer pairs.  With equal nodes and slots, and no expert with more copies than there are nodes,
none is left: the node with the fewest different experts always allows a swap.
"""

import numpy as np

from fleet.numba_cache import jit_inner
from placement.nearest.search import swap
from placement.nearest.state import Instance, Layer, apart, on_node


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
