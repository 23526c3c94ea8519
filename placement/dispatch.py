"""The dispatch rules of engines, and the load of each GPU under a rule.

docs/explanation/placement/dispatch.md has the rules and their sources.  All GPUs send equally many tokens (attention is
data-parallel).  Loads under `hash` equal those under `equal`.
"""

from typing import Any, cast

import numpy as np
from numba import float64, int64, types

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints
from placement.layout import Layout, LayoutArrays
from placement.options import Dispatch

__all__ = ["EQUAL", "LAYOUT", "NEAREST", "RULES", "Dispatch", "gpu_loads", "shares_of_copies", "slots_of_experts"]

EQUAL, NEAREST = 0, 1  # codes in compiled functions
LAYOUT: Any = cast("Any", types).NamedTuple((int64[::1], int64[::1], int64[::1], float64[::1]), LayoutArrays)
RULES = {Dispatch.EQUAL: EQUAL, Dispatch.HASH: EQUAL, Dispatch.NEAREST: NEAREST}  # equal loads


@jit_inner
def shares_of_copies(slots: Ints, gpu_of_slot: Ints, node_of_gpu: Ints, rule: int, shares: Floats) -> None:
    """The share of its expert's tokens that each copy receives.  `slots`, rising, hold the copies."""
    copies, gpus = len(slots), len(node_of_gpu)
    if rule == EQUAL or copies == 1:
        for c in range(copies):
            shares[c] = 1.0 / copies
        return
    for c in range(copies):
        shares[c] = 0.0
    spread = node_of_gpu[gpu_of_slot[slots[0]]] != node_of_gpu[gpu_of_slot[slots[copies - 1]]]
    far = 0
    for gpu in range(gpus):
        taken = -1
        for c in range(copies):
            there = gpu_of_slot[slots[c]]
            if there == gpu:
                taken = c
                break
            if spread and taken < 0 and node_of_gpu[there] == node_of_gpu[gpu]:
                taken = c
        if taken < 0:
            far += 1
        else:
            shares[taken] += 1.0 / gpus
    for c in range(copies):
        shares[c] += far / gpus / copies


@jit_inner
def slots_of_experts(row: Ints, first: Ints, slots: Ints) -> None:
    """The slots of one layer by expert: expert e is in slots[first[e] : first[e + 1]], rising."""
    first[:] = 0
    for expert in row:
        first[expert + 1] += 1
    for expert in range(len(first) - 1):
        first[expert + 1] += first[expert]
    filled = first.copy()
    for slot in range(len(row)):
        slots[filled[row[slot]]] = slot
        filled[row[slot]] += 1


@jit_entry(float64[:, ::1](int64[:, ::1], float64[:, ::1], LAYOUT, int64))
def _gpu_loads(expert_of_slot: Ints, tokens: Floats, layout: LayoutArrays, rule: int) -> Floats:
    layers, slots = expert_of_slot.shape
    experts, gpu_of_slot, node_of_gpu = tokens.shape[1], layout.gpu_of_slot, layout.node_of_gpu
    loads = np.zeros((layers, len(node_of_gpu)))
    first, of_expert = np.empty(experts + 1, np.int64), np.empty(slots, np.int64)
    shares = np.empty(slots)
    for layer in range(layers):
        slots_of_experts(expert_of_slot[layer], first, of_expert)
        for expert in range(experts):
            copies = of_expert[first[expert] : first[expert + 1]]
            shares_of_copies(copies, gpu_of_slot, node_of_gpu, rule, shares)
            for c in range(len(copies)):
                loads[layer, gpu_of_slot[copies[c]]] += tokens[layer, expert] * shares[c]
    return loads


def gpu_loads(expert_of_slot: Ints, tokens: Floats, *, layout: Layout, rule: Dispatch) -> Floats:
    """[layers, GPUs]: tokens that each GPU computes, from tokens per expert [layers, experts]."""
    return _gpu_loads(
        np.ascontiguousarray(expert_of_slot, dtype=np.int64),
        np.ascontiguousarray(tokens, dtype=np.float64),
        layout.arrays,
        RULES[rule],
    )
