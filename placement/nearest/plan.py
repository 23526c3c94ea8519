"""Plans for all layers, one after the other, for rule `nearest`: starts, local search and perturbation.

Perturbation is iterated local search: a few random changes, the search again, and back to the best placement.  It is
only for layers that the search leaves far from even, as with few slots per GPU.  Random numbers come from a linear
congruential generator (Knuth's MMIX), so equal loads give equal plans.
"""

import numpy as np
from numba import boolean, float64, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints
from placement.dispatch import LAYOUT
from placement.layout import LayoutArrays
from placement.nearest.initial import initial_placement
from placement.nearest.search import give, improve, may_give, spread_copies, swap
from placement.nearest.state import Instance, Layer, busiest_of, empty_layer, may_move, put, reshare

FAR = 0.02  # over even: nearer layers are not perturbed
SEED = 42
SWAPS = 2  # before each search, and one slot for another expert
EFFORT = 2000  # searches times slots, per layer
HEAVIEST = (0.8, 0.65, 0.5, 0.4, 0.0)  # of a GPU's even load, for a copy; 0: split as far as slots allow
CLOSE = 0.005  # over even: a plan as near is taken


@jit_inner
def _given(instance: Instance, expert_of_slot: Ints) -> Layer:
    layer = empty_layer(instance)
    for slot in range(len(expert_of_slot)):
        put(layer, expert_of_slot[slot], slot)
    for expert in range(len(instance.tokens)):
        reshare(layer, instance, expert)
    return layer


@jit_inner
def _searched(start: Layer, instance: Instance, tries: int) -> Layer:
    """The best placement found from a start; changes the start."""
    best, least, state = start, np.inf, SEED
    trial = start
    for _ in range(tries):
        improve(trial, instance)
        busiest = busiest_of(trial, instance)
        if busiest < least:
            best, least = trial, busiest
        if least <= 1.0 + FAR:
            break
        trial = _given(instance, best.expert_of_slot)
        state = _perturb(trial, instance, state)
    return best


@jit_inner
def _next(state: int) -> int:
    return state * 6364136223846793005 + 1442695040888963407


@jit_inner
def _drawn(state: int, limit: int) -> int:
    return ((state >> 33) & 0x7FFFFFFF) % limit


@jit_inner
def _perturb(layer: Layer, instance: Instance, state: int) -> int:
    slots, gpu_of_slot = len(layer.weights), instance.gpu_of_slot
    for _ in range(SWAPS):
        state = _next(state)
        slot = _drawn(state, slots)
        state = _next(state)
        other = _drawn(state, slots)
        if may_move(layer, instance, slot, gpu_of_slot[other]) and may_move(layer, instance, other, gpu_of_slot[slot]):
            swap(layer, instance, slot, other)
    state = _next(state)
    slot = _drawn(state, slots)
    state = _next(state)
    taker = _drawn(state, len(instance.tokens))
    giver = layer.expert_of_slot[slot]
    if layer.copies[giver] > 1 and may_give(layer, instance, slot, taker):
        give(layer, instance, slot, giver, taker)
    return state


@jit_inner
def _are_alike(node_of_gpu: Ints) -> bool:
    """Whether all nodes have equal numbers of GPUs: then the nodes of a copy's far GPUs do not matter."""
    gpus = np.zeros(node_of_gpu[-1] + 1, np.int64)
    for node in node_of_gpu:
        gpus[node] += 1
    alike = True
    for node in range(1, len(gpus)):
        alike &= gpus[node] == gpus[0]
    return alike


@jit_inner
def _first(instance: Instance, start: Ints, at: int, parts: bool) -> Layer:  # noqa: FBT001
    if len(start) == 0:
        return initial_placement(instance, HEAVIEST[at])
    layer = _given(instance, start)
    if parts:
        spread_copies(layer, instance)
    return layer


@jit_inner
def _planned(instance: Instance, start: Ints, parts: bool) -> Layer:  # noqa: FBT001
    best, least = empty_layer(instance), np.inf
    tried = 0 if len(start) == 0 else len(HEAVIEST) - 1
    for at in range(tried, len(HEAVIEST)):
        tries = EFFORT // len(instance.gpu_of_slot) + 2 if HEAVIEST[at] == 0.0 else 1
        layer = _searched(_first(instance, start, at, parts), instance, tries)
        busiest = busiest_of(layer, instance)
        if busiest < least:
            best, least = layer, busiest
        if least <= 1.0 + CLOSE:
            break
    return best


@jit_entry(int64[:, ::1](float64[:, ::1], int64[:, ::1], LAYOUT, boolean))
def plan(tokens: Floats, start: Ints, layout: LayoutArrays, parts: bool) -> Ints:  # noqa: FBT001
    """[layers, slots]; `start` has as many rows, or none; copies that share a node there may be spread first."""
    gpu_of_slot, node_of_gpu, first_slot, shares = layout
    found = np.empty((len(tokens), len(gpu_of_slot)), np.int64)
    may_change_node, none = _are_alike(node_of_gpu), np.empty(0, np.int64)
    for row in range(len(tokens)):
        instance = Instance(
            gpu_of_slot, node_of_gpu, first_slot, may_change_node, tokens[row], shares * tokens[row].sum()
        )
        layer = _planned(instance, start[row] if len(start) > 0 else none, parts)
        for slot in range(len(gpu_of_slot)):  # one by one: it compiles faster than a copy of arrays
            found[row, slot] = layer.expert_of_slot[slot]
    return found
