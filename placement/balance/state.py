"""The state of one layer during balancing, for compiled code.

Loads are parts of the layer's tokens.  A GPU's fair load is its part of the total speed, and its `fill` is its load
over its fair load.  The greatest fill is the layer's imbalance.  The copies of each GPU are sorted by falling load, so
the search for a swap is linear in the number of copies.
"""

from typing import NamedTuple

from fleet.numba_cache import jit_inner
from placement.arrays import Flags, Floats, Ints

CLEARLY = 1 - 1e-12  # an improvement below this factor is rounding


class Layer(NamedTuple):
    """GPU g's copies are at the places first[g] up to first[g + 1]."""

    tokens: Floats  # [experts]: part of the layer's tokens
    counts: Ints  # [experts]: copies
    each: Floats  # [experts]: tokens per copy
    expert_at: Ints  # [slots]
    load_at: Floats  # [slots]: each[expert_at]
    holds: Flags  # [GPUs, experts]
    carried: Floats  # [GPUs]
    shares: Floats  # [GPUs]: fair load
    first: Ints  # [GPUs + 1]


@jit_inner
def fill_of(layer: Layer, gpu: int) -> float:
    """A GPU's load over its fair load."""
    return float(layer.carried[gpu] / layer.shares[gpu])


@jit_inner
def fullest(layer: Layer) -> tuple[int, int, float]:
    """The most loaded GPU, the least loaded one, and the fill of the former."""
    full, empty = 0, 0
    most = least = layer.carried[0] / layer.shares[0]
    for gpu in range(1, len(layer.shares)):
        fill = layer.carried[gpu] / layer.shares[gpu]
        if fill > most:
            full, most = gpu, fill
        if fill < least:
            empty, least = gpu, fill
    return full, empty, most


@jit_inner
def settle(layer: Layer) -> None:
    """Recompute loads, sums and the order of all copies from the placement and the counts."""
    for gpu in range(len(layer.shares)):
        layer.carried[gpu] = 0.0
        for place in range(layer.first[gpu], layer.first[gpu + 1]):
            layer.load_at[place] = layer.each[layer.expert_at[place]]
            layer.carried[gpu] += layer.load_at[place]
            move_to_order(layer, layer.first[gpu], place, place + 1)


@jit_inner
def move_to_order(layer: Layer, first: int, place: int, end: int) -> None:
    """Move the copy at `place` to its position in the order of its GPU, from `first` up to `end`."""
    expert_at, load_at = layer.expert_at, layer.load_at
    expert, load = expert_at[place], load_at[place]
    while place + 1 < end and load_at[place + 1] > load:
        expert_at[place], load_at[place] = expert_at[place + 1], load_at[place + 1]
        place += 1
    while place > first and load_at[place - 1] < load:
        expert_at[place], load_at[place] = expert_at[place - 1], load_at[place - 1]
        place -= 1
    expert_at[place], load_at[place] = expert, load


@jit_inner
def put(layer: Layer, gpu: int, place: int, expert: int) -> None:
    layer.holds[gpu, layer.expert_at[place]] = False
    layer.holds[gpu, expert] = True
    layer.carried[gpu] += layer.each[expert] - layer.load_at[place]
    layer.expert_at[place], layer.load_at[place] = expert, layer.each[expert]
    move_to_order(layer, layer.first[gpu], place, layer.first[gpu + 1])


@jit_inner
def place_of(layer: Layer, gpu: int, expert: int) -> int:
    """The place of a GPU's copy of an expert; the GPU must hold one."""
    place = layer.first[gpu]
    while layer.expert_at[place] != expert:
        place += 1
    return int(place)
