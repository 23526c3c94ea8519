"""Perturbation out of a local optimum: a few random changes, and a way back.

For layers with few slots, where a search from one start ends early.  The random numbers come from a counter, so equal
loads give equal placements on every machine.
"""

from typing import NamedTuple

from fleet.numba_cache import jit_inner
from placement.arrays import Ints
from placement.balance.replica_moves import exchange
from placement.balance.state import Layer, fullest, place_of, settle
from placement.balance.swaps import swap

MAX_CHANGES = 6  # per round


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
