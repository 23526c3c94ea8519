"""Replica counts: one, or one on every node, and numbers in between only where the load requires them.

With one copy, or one on every node, no GPU draws.  For numbers in between SGLang's far GPUs draw
(placement.nearest.sglang_dispatch), and the draws are even on average only.  Where nodes are equal:

1. As few copies of each expert as keep each copy under a given part of a GPU's even load.
2. One more, repeatedly, for the expert with several where that lowers the variance of the draws most.  The variance is
   small from one node less than all: the GPUs of a node draw from one shuffle, which is as even as whole numbers allow.
3. One on every node for others, hottest first, while slots are left for that.
4. The rest to the coldest experts, where it does no harm.

Where these do not fit, and where nodes differ: one more, repeatedly, for the expert with the most tokens per copy; more
than one per node only when all have that.
"""

import math

import numpy as np

from fleet.numba_cache import jit_inner
from placement.arrays import Floats, Ints
from placement.nearest.state import Instance, apart, falling


@jit_inner
def counts_of(instance: Instance, heaviest: float) -> Ints:
    """[experts]; a copy should have at most `heaviest` of a GPU's even load, where that is above 0."""
    slots, gpus = len(instance.gpu_of_slot), len(instance.node_of_gpu)
    if heaviest > 0.0 and apart(instance) > 2:
        counts = _few_drawn(instance, slots, apart(instance), heaviest)
        if counts.sum() == slots:
            return counts
    return _greedy(instance.tokens, slots, instance.node_of_gpu[gpus - 1] + 1, gpus)


@jit_inner
def _few_drawn(instance: Instance, slots: int, nodes: int, heaviest: float) -> Ints:
    """The counts of steps 1 to 4; their sum is not `slots` where they do not fit."""
    most = heaviest * instance.even.min()
    counts = np.ones(len(instance.tokens), np.int64)
    for expert in range(len(counts)):
        counts[expert] = min(nodes, max(1, math.ceil(instance.tokens[expert] / most)))
    spare = slots - counts.sum()
    while spare > 0:
        expert = _most_off(instance, counts, nodes)
        if expert < 0:
            break
        counts[expert] += 1
        spare -= 1
    order = falling(instance.tokens)
    for expert in order:
        if counts[expert] == 1 and nodes - 1 <= spare:
            counts[expert] = nodes
            spare -= nodes - 1
    for expert in order[::-1]:
        lacking = max(0, min(spare, nodes - counts[expert]))
        counts[expert] += lacking
        spare -= lacking
    return counts


@jit_inner
def _most_off(instance: Instance, counts: Ints, nodes: int) -> int:
    """The expert with several copies for which one more lowers the variance of the draws most, or -1."""
    gpus = len(instance.node_of_gpu) // nodes
    best, most = -1, 0.0
    for expert in range(len(counts)):
        if 1 < counts[expert] < nodes:
            before, after = _variance(counts[expert], nodes, gpus), _variance(counts[expert] + 1, nodes, gpus)
            gain = instance.tokens[expert] * instance.tokens[expert] * (before - after)
            if gain > most:
                best, most = expert, gain
    return best


@jit_inner
def _variance(copies: int, nodes: int, gpus: int) -> float:
    """The variance of a copy's far GPUs: each node without a copy reads a part of its own shuffle (hypergeometric)."""
    far = (nodes - copies) * gpus
    if far <= gpus:  # one shuffle at most: copies get equally many, or one more
        rest = far % copies / copies
        return rest * (1.0 - rest)
    return (nodes - copies) * gpus / copies * (1.0 - 1.0 / copies) * (far - gpus) / (far - 1.0)


@jit_inner
def _greedy(tokens: Floats, slots: int, nodes: int, gpus: int) -> Ints:
    counts = np.ones(len(tokens), np.int64)
    most = nodes
    for _ in range(slots - len(tokens)):
        best = -1
        while best < 0:
            for expert in range(len(tokens)):
                if counts[expert] < most and (
                    best < 0 or tokens[expert] * counts[best] > tokens[best] * counts[expert]
                ):
                    best = expert
            if best < 0:
                most = gpus
        counts[best] += 1
    return counts
