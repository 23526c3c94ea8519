"""Copies of one expert that share a node, laid on nodes of their own.

A copy beside another changes places with what lies on a node without one and is not on its own node either, the nearest
in weight.  Every such swap leaves fewer pairs.  Where nodes are alike, with equally many slots, and no expert has more
copies than there are nodes, none is left: on the node with the fewest different experts one may always go, as any node
without it holds something that is not there.
"""

import numpy as np

from fleet.numba_cache import jit_inner
from placement.nearest.search import swap
from placement.nearest.state import Ground, Layer, apart, on_node


@jit_inner
def part_copies(layer: Layer, ground: Ground) -> bool:
    """Until no copy can; whether none shares a node that need not."""
    moved, parted = True, False
    while moved:
        moved, parted = False, True
        for slot in range(len(layer.weights)):
            if _is_crowded(layer, ground, slot):
                other = _exchange_for(layer, ground, slot)
                if other >= 0:
                    swap(layer, ground, slot, other)
                    moved = True
                else:
                    parted = False
    return parted


@jit_inner
def _is_crowded(layer: Layer, ground: Ground, slot: int) -> bool:
    """Whether another copy shares the node and need not."""
    expert, node = layer.expert_of_slot[slot], ground.node_of_gpu[ground.gpu_of_slot[slot]]
    return 1 < layer.copies[expert] <= apart(ground) and on_node(layer, ground, expert, node) > 1


@jit_inner
def _exchange_for(layer: Layer, ground: Ground, slot: int) -> int:
    """The slot to change places with, or -1."""
    expert, here = layer.expert_of_slot[slot], ground.node_of_gpu[ground.gpu_of_slot[slot]]
    best, best_off = -1, np.inf
    for other in range(len(layer.weights)):
        node = ground.node_of_gpu[ground.gpu_of_slot[other]]
        off = abs(layer.weights[other] - layer.weights[slot])
        if (
            off < best_off
            and on_node(layer, ground, expert, node) == 0
            and on_node(layer, ground, layer.expert_of_slot[other], here) == 0
        ):
            best, best_off = other, off
    return best
