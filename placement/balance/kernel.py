"""All layers of a model, one by one, each on its own."""

import numpy as np
from numba import float64, int64

from fleet.compiled import entry
from placement.arrays import Floats, Ints
from placement.balance.descent import Tools, descend
from placement.balance.exchanges import Holders
from placement.balance.heap import Heap
from placement.balance.kicks import Kept, keep, kick_and_search, restore
from placement.balance.packing import Packing, pack
from placement.balance.replicas import Working, replicate
from placement.balance.state import Layer, fullest

STARTS = 5  # from all spare copies for the hottest experts to all for the coldest, where GPUs differ


@entry(int64[:, ::1](float64[:, ::1], int64[:, ::1], int64[::1], float64[::1], int64[::1], float64[::1], int64))
def balance(  # noqa: PLR0917 - numba's signatures know no keywords
    tokens: Floats, order: Ints, first: Ints, shares: Floats, room: Ints, targets: Floats, kicks: int
) -> Ints:
    """[layers, slots], for tokens that add up to 1 in each layer.

    `order`: each layer's experts, hottest first.  `targets`: fill of the fullest GPU that is good enough.
    """
    layers, experts = tokens.shape
    slots, gpus = first[-1], len(shares)
    expert_of_slot = np.empty((layers, slots), np.int64)
    counts, each, load_at = np.empty(experts, np.int64), np.empty(experts), np.empty(slots)
    holds, carried = np.empty((gpus, experts), np.bool_), np.empty(gpus)
    working = Working(Heap(np.empty(experts), np.empty(experts, np.int64)), np.empty(slots, np.int64))
    gpu_heap = Heap(np.empty(gpus), np.empty(gpus, np.int64))
    filled, aside = np.empty(gpus, np.int64), np.empty(gpus, np.int64)
    holders = Holders(np.zeros(experts, np.int64), np.empty(experts), np.empty(experts))
    tools = Tools(holders, np.empty(4, np.int64))
    kept = Kept(np.empty(slots, np.int64), np.empty(experts, np.int64))
    spare, uniform = slots - experts, len(room) == 2 and shares.min() == shares.max()
    for row in range(layers):
        layer = Layer(tokens[row], counts, each, expert_of_slot[row], load_at, holds, carried, shares, first)
        fill, target = np.inf, targets[row]
        for start in range(2 if uniform else STARTS):
            replicate(layer, order[row], room, working, 0 if uniform else spare * start // (STARTS - 1))
            pack(layer, working.copies, Packing(filled, gpu_heap, aside, uniform and start == 0))
            descend(layer, tools, target)
            if fullest(layer)[2] < fill:
                fill = fullest(layer)[2]
                keep(layer, kept)
            if fill <= target:
                break
        if fill > target:
            restore(layer, kept)
            kick_and_search(layer, tools, kept, target, kicks)
    return expert_of_slot
