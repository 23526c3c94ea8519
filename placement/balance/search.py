"""The search, layer by layer: start, local search, and further starts or perturbation while the layer is uneven.

The local search makes swaps, then replica moves and pair swaps, until none lowers the maximum load.  Perturbation makes
a few random changes to the best placement, for layers with few slots, where a search from one start ends early.  Its
random numbers come from a counter, so equal loads give equal placements on every machine.
"""

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints
from placement.balance.packing import Heap, Packing, Workspace, pack, replicate
from placement.balance.state import CLEARLY, Layer, fullest, place_of, settle
from placement.balance.swaps import Holders, best_double, best_exchange, exchange, swap, swap_down, swap_two
from placement.dispatch import LAYOUT
from placement.layout import LayoutArrays

MAX_CHANGES = 6  # per round
MAX_WORK = 10**8  # examined copies; only thousands of GPUs reach this limit
MAX_FOR_DOUBLES = 32  # copies per GPU; the work grows with their cube, and with more copies the swaps suffice
STARTS = 5  # the part of spare copies for the coldest experts, where GPUs differ
ALIKE_STARTS = 2  # two packings of the same copies, where GPUs are equal


@jit_inner
def descend(layer: Layer, holders: Holders, target: float) -> None:
    """Search until the most loaded GPU meets `target`, nothing helps or the work limit is reached."""
    slots, work = len(layer.expert_at), MAX_WORK
    while work > 0:
        work -= (1 + swap_down(layer, target, work // slots)) * slots
        full, _empty, fill = fullest(layer)
        if fill <= target:
            return
        copies = layer.first[full + 1] - layer.first[full]
        work -= slots * copies * copies
        _fill, gpu, place, expert = best_exchange(layer, holders, full, fill * CLEARLY)
        if gpu >= 0:
            exchange(layer, gpu, place, expert)
        elif not _doubly_swapped(layer, full, fill * CLEARLY):
            return


@jit_inner
def _doubly_swapped(layer: Layer, full: int, fill: float) -> bool:
    partner, places = -1, (-1, -1, -1, -1)
    if layer.first[full + 1] - layer.first[full] > MAX_FOR_DOUBLES:
        return False
    for other in range(len(layer.shares)):
        if other != full:
            better, found = best_double(layer, full, other, fill)
            if better < fill:
                fill, partner, places = better, other, found
    if partner >= 0:
        swap_two(layer, full, partner, places)
    return partner >= 0


class Saved(NamedTuple):
    expert_at: Ints  # [slots]
    counts: Ints  # [experts]


@jit_inner
def save(layer: Layer, kept: Saved) -> None:
    for place in range(len(layer.expert_at)):
        kept.expert_at[place] = layer.expert_at[place]
    for expert in range(len(layer.counts)):
        kept.counts[expert] = layer.counts[expert]


@jit_inner
def restore(layer: Layer, kept: Saved) -> None:
    for gpu in range(len(layer.shares)):
        for place in range(layer.first[gpu], layer.first[gpu + 1]):
            layer.holds[gpu, layer.expert_at[place]] = False
        for place in range(layer.first[gpu], layer.first[gpu + 1]):
            layer.expert_at[place] = kept.expert_at[place]
            layer.holds[gpu, layer.expert_at[place]] = True
    for expert in range(len(layer.counts)):
        layer.counts[expert] = kept.counts[expert]
        layer.each[expert] = layer.tokens[expert] / layer.counts[expert]
    settle(layer)


@jit_inner
def perturb(layer: Layer, draws: int) -> int:
    """Make a few random changes; returns the next state of the generator."""
    draws = _next(draws)
    for _change in range(1 + _below(MAX_CHANGES, draws)):
        draws = _change_at_random(layer, draws)
    return draws


@jit_inner
def _change_at_random(layer: Layer, draws: int) -> int:
    """Put another expert into a random place where that is legal: one more copy, or a swap."""
    gpus, experts = len(layer.shares), len(layer.tokens)
    draws = _next(draws)
    gpu = _below(gpus, draws)
    draws = _next(draws)
    if _below(2, draws):
        gpu = fullest(layer)[0]
    draws = _next(draws)
    place = layer.first[gpu] + _below(layer.first[gpu + 1] - layer.first[gpu], draws)
    gone = layer.expert_at[place]
    draws = _next(draws)
    expert = _first_missing(layer, gpu, _below(experts, draws))
    draws = _next(draws)
    if expert >= 0 and layer.counts[gone] > 1 and _below(2, draws):
        exchange(layer, gpu, place, expert)
    elif expert >= 0:
        draws = _next(draws)
        other = _first_trading(layer, expert, gone, _below(gpus, draws))
        if other >= 0:
            swap(layer, gpu, place, other, place_of(layer, other, expert))
    return draws


@jit_inner
def _first_missing(layer: Layer, gpu: int, start: int) -> int:
    """The first expert from `start` on, cyclically, that the GPU does not hold; -1 where it holds all."""
    experts = len(layer.tokens)
    for step in range(experts):
        if not layer.holds[gpu, (start + step) % experts]:
            return (start + step) % experts
    return -1


@jit_inner
def _first_trading(layer: Layer, given: int, taken: int, start: int) -> int:
    """The first GPU from `start` on that holds the one expert and not the other; -1 if none."""
    gpus = len(layer.shares)
    for step in range(gpus):
        gpu = (start + step) % gpus
        if layer.holds[gpu, given] and not layer.holds[gpu, taken]:
            return gpu
    return -1


@jit_inner
def _next(draws: int) -> int:
    """The next number of a linear congruential generator modulo 2^64 (Knuth's constants)."""
    return draws * 6364136223846793005 + 1442695040888963407


@jit_inner
def _below(end: int, draws: int) -> int:
    return ((draws >> 33) & 0x3FFFFFFF) % end


@jit_entry(int64[:, ::1](float64[:, ::1], int64[:, ::1], LAYOUT, int64[::1], float64[::1], boolean, int64))
def balance(  # noqa: PLR0917 - numba's signatures know no keywords
    tokens: Floats,
    order: Ints,
    layout: LayoutArrays,
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
    _, _, first, shares = layout
    slots, gpus = first[-1], len(shares)
    expert_of_slot = np.empty((layers, slots), np.int64)
    counts, each, load_at = np.empty(experts, np.int64), np.empty(experts), np.empty(slots)
    holds, carried = np.empty((gpus, experts), np.bool_), np.empty(gpus)
    workspace = Workspace(Heap(np.empty(experts), np.empty(experts, np.int64)), np.empty(slots, np.int64))
    gpu_heap = Heap(np.empty(gpus), np.empty(gpus, np.int64))
    filled, popped = np.empty(gpus, np.int64), np.empty(gpus, np.int64)
    holders = Holders(np.zeros(experts, np.int64), np.empty(experts), np.empty(experts))
    kept = Saved(np.empty(slots, np.int64), np.empty(experts, np.int64))
    starts = ALIKE_STARTS if alike else STARTS
    for row in range(layers):
        layer = Layer(tokens[row], counts, each, expert_of_slot[row], load_at, holds, carried, shares, first)
        fill, draws = np.inf, 1
        for turn in range(starts + rounds):
            if turn < starts:
                cold = 0 if alike else (slots - experts) * turn // (STARTS - 1)
                replicate(layer, order[row], capacity, workspace, cold)
                pack(layer, workspace.copies, Packing(filled, gpu_heap, popped, alike and turn == 0))
            else:
                draws = perturb(layer, draws)
            descend(layer, holders, targets[row])
            found = fullest(layer)[2]
            if found <= fill:
                fill = found
                if fill <= targets[row]:
                    break
                save(layer, kept)
            elif turn >= starts - 1:
                restore(layer, kept)
    return expert_of_slot
