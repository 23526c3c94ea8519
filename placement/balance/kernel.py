"""The search, layer by layer: start, local search, and further starts or perturbation while the layer is uneven."""

import numpy as np
from numba import boolean, float64, int64

from fleet.numba_cache import jit_entry
from placement.arrays import Floats, Ints
from placement.balance.heap import Heap
from placement.balance.local_search import Tools, descend
from placement.balance.packing import Packing, pack
from placement.balance.perturbation import Saved, perturb, restore, save
from placement.balance.replica_counts import Workspace, replicate
from placement.balance.replica_moves import Holders
from placement.balance.state import Layer, fullest

STARTS = 5  # the part of spare copies for the coldest experts, where GPUs differ
ALIKE_STARTS = 2  # two packings of the same copies, where GPUs are equal


@jit_entry(
    int64[:, ::1](float64[:, ::1], int64[:, ::1], int64[::1], float64[::1], int64[::1], float64[::1], boolean, int64)
)
def balance(  # noqa: PLR0917 - numba's signatures know no keywords
    tokens: Floats,
    order: Ints,
    first: Ints,
    shares: Floats,
    capacity: Ints,
    targets: Floats,
    alike: bool,  # noqa: FBT001
    rounds: int,
) -> Ints:
    """[layers, slots], for tokens that add up to 1 in each layer.

    `order`: each layer's experts, hottest first.  `targets`: the fill at which the search ends.  `alike`: whether all
    GPUs have equal speed and equal slots.
    """
    layers, experts = tokens.shape
    slots, gpus = first[-1], len(shares)
    expert_of_slot = np.empty((layers, slots), np.int64)
    counts, each, load_at = np.empty(experts, np.int64), np.empty(experts), np.empty(slots)
    holds, carried = np.empty((gpus, experts), np.bool_), np.empty(gpus)
    workspace = Workspace(Heap(np.empty(experts), np.empty(experts, np.int64)), np.empty(slots, np.int64))
    gpu_heap = Heap(np.empty(gpus), np.empty(gpus, np.int64))
    filled, aside = np.empty(gpus, np.int64), np.empty(gpus, np.int64)
    tools = Tools(Holders(np.zeros(experts, np.int64), np.empty(experts), np.empty(experts)), np.empty(4, np.int64))
    kept = Saved(np.empty(slots, np.int64), np.empty(experts, np.int64))
    starts = ALIKE_STARTS if alike else STARTS
    for row in range(layers):
        layer = Layer(tokens[row], counts, each, expert_of_slot[row], load_at, holds, carried, shares, first)
        fill, draws = np.inf, 1
        for turn in range(starts + rounds):
            if turn < starts:
                cold = 0 if alike else (slots - experts) * turn // (STARTS - 1)
                replicate(layer, order[row], capacity, workspace, cold)
                pack(layer, workspace.copies, Packing(filled, gpu_heap, aside, alike and turn == 0))
            else:
                draws = perturb(layer, draws)
            descend(layer, tools, targets[row])
            found = fullest(layer)[2]
            if found <= fill:
                fill = found
                if fill <= targets[row]:
                    break
                save(layer, kept)
            elif turn >= starts - 1:
                restore(layer, kept)
    return expert_of_slot
