"""Local search with perturbation: a few random changes, the search again, and back to the best placement.

Iterated local search, only for layers that the search leaves far from even, as with few slots per GPU.  Random numbers
come from a linear congruential generator (Knuth's MMIX), so equal loads give equal plans.
"""

import numpy as np

from fleet.numba_cache import jit_inner
from placement.arrays import Ints
from placement.nearest.search import give, improve, may_give, swap
from placement.nearest.state import Instance, Layer, empty_layer, fullest, may_move, put, reshare

FAR = 0.02  # over even: nearer layers are not perturbed
SEED = 42
SWAPS = 2  # before each search, and one slot for another expert


@jit_inner
def given(instance: Instance, expert_of_slot: Ints) -> Layer:
    layer = empty_layer(instance)
    for slot in range(len(expert_of_slot)):
        put(layer, expert_of_slot[slot], slot)
    for expert in range(len(instance.tokens)):
        reshare(layer, instance, expert)
    return layer


@jit_inner
def searched(start: Layer, instance: Instance, tolerance: float, rounds: int, tries: int) -> Layer:
    """The best placement found from a start; changes the start."""
    best, least, state = start, np.inf, SEED
    trial = start
    for _ in range(tries):
        improve(trial, instance, tolerance, rounds)
        busiest = busiest_of(trial, instance)
        if busiest < least:
            best, least = trial, busiest
        if least <= 1.0 + FAR:
            break
        trial = given(instance, best.expert_of_slot)
        state = _perturb(trial, instance, state)
    return best


@jit_inner
def busiest_of(layer: Layer, instance: Instance) -> float:
    """The load of the most loaded GPU over even."""
    gpu = fullest(layer, instance)
    return float(layer.loads[gpu] / instance.even[gpu])


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
