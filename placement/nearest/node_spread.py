"""Copies of one expert that share a node, laid on nodes of their own.

A copy beside another changes places with what lies on a node without one and is not on its own node either, the nearest
in weight.  Every such swap leaves fewer pairs.  Where nodes are alike, with equally many slots, and no expert has more
copies than there are nodes, none is left: on the node with the fewest different experts one may always go, as any node
without it holds something that is not there.
"""

import numpy as np

from fleet.numba_cache import jit_inner
from placement.nearest.search import swap
from placement.nearest.state import Instance, Layer, apart, on_node


@jit_inner
def spread_copies(layer: Layer, instance: Instance) -> bool:
    """Until no copy can; whether none shares a node that need not."""
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
    """Whether another copy shares the node and need not."""
    expert, node = layer.expert_of_slot[slot], instance.node_of_gpu[instance.gpu_of_slot[slot]]
    return 1 < layer.copies[expert] <= apart(instance) and on_node(layer, instance, expert, node) > 1


@jit_inner
def _exchange_for(layer: Layer, instance: Instance, slot: int) -> int:
    """The slot to change places with, or -1."""
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
