"""Out of dead ends: a few random changes, the search again, and back to the best there was (iterated local search).

Only for layers that the search leaves far from even, as it does where GPUs have few slots.  Numbers come from a linear
congruential generator (Knuth's MMIX), so that equal loads give equal plans.
"""

from fleet.compiled import part
from placement.arrays import Ints
from placement.nearest.search import give, improve, swap
from placement.nearest.state import Ground, Layer, empty_layer, fullest, on_gpu, put, reshare

FAR = 0.02  # over even: what is nearer is left as it is
EFFORT = 2000  # tries times slots, per layer
SWAPS = 2  # before each search, and one slot given to another expert


@part
def given(ground: Ground, expert_of_slot: Ints) -> Layer:
    """A layer as it lies."""
    layer = empty_layer(ground)
    for slot in range(len(expert_of_slot)):
        put(layer, expert_of_slot[slot], slot)
    for expert in range(len(ground.tokens)):
        reshare(layer, ground, expert)
    return layer


@part
def shaken(layer: Layer, ground: Ground, tolerance: float, rounds: int) -> Layer:
    """The best found."""
    best, state = layer, 42
    for _ in range(EFFORT // len(layer.weights) + 1):
        least = _busiest(best, ground)
        if least <= 1.0 + FAR:
            break
        trial = given(ground, best.expert_of_slot)
        state = _shake(trial, ground, state)
        improve(trial, ground, tolerance, rounds)
        if _busiest(trial, ground) < least:
            best = trial
    return best


@part
def _busiest(layer: Layer, ground: Ground) -> float:
    gpu = fullest(layer, ground)
    return float(layer.loads[gpu] / ground.even[gpu])


@part
def _next(state: int) -> int:
    return state * 6364136223846793005 + 1442695040888963407


@part
def _drawn(state: int, limit: int) -> int:
    """From 0 to limit - 1, of the upper bits."""
    return ((state >> 33) & 0x7FFFFFFF) % limit


@part
def _shake(layer: Layer, ground: Ground, state: int) -> int:
    slots, gpu_of_slot = len(layer.weights), ground.gpu_of_slot
    for _ in range(SWAPS):
        state = _next(state)
        slot = _drawn(state, slots)
        state = _next(state)
        other = _drawn(state, slots)
        expert, there = layer.expert_of_slot[slot], layer.expert_of_slot[other]
        if not on_gpu(layer, ground, expert, gpu_of_slot[other]) and not on_gpu(
            layer, ground, there, gpu_of_slot[slot]
        ):
            swap(layer, ground, slot, other)
    state = _next(state)
    slot = _drawn(state, slots)
    state = _next(state)
    taker = _drawn(state, len(ground.tokens))
    giver = layer.expert_of_slot[slot]
    if layer.copies[giver] > 1 and not on_gpu(layer, ground, taker, gpu_of_slot[slot]):
        give(layer, ground, slot, giver, taker)
    return state
