"""The dispatch rules of engines, and the load of each GPU under a rule.

All GPUs send equally many tokens (attention is data-parallel).  The rules:

- `equal`: every copy receives the same share, for each expert alone.  SGLang's `dynamic`.
- `hash`: every copy receives the same share; one number selects the copies of all experts of a token
  (`placement.traffic.hashing`).  vLLM, by a hash of the token's position.  Loads equal those under `equal`.
- `nearest`: SGLang's `static`, read in `expert_location.py` (0.5.23): the copy on the token's own GPU; else, unless all
  copies lie on one node, the first on its own node, by slot.  All other GPUs share the copies evenly.

An expert with one copy needs no rule.
"""

import numpy as np
from numba import float64, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints
from placement.layout import Layout
from placement.options import Dispatch

__all__ = ["EQUAL", "NEAREST", "RULES", "Dispatch", "gpu_loads", "shares_of_copies"]

EQUAL, NEAREST = 0, 1  # codes in compiled functions
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


@jit_entry(float64[:, ::1](int64[:, ::1], float64[:, ::1], int64[::1], int64[::1], int64))
def _gpu_loads(expert_of_slot: Ints, tokens: Floats, gpu_of_slot: Ints, node_of_gpu: Ints, rule: int) -> Floats:
    layers, slots = expert_of_slot.shape
    experts = tokens.shape[1]
    loads = np.zeros((layers, len(node_of_gpu)))
    first, filled, of_expert = np.empty(experts + 1, np.int64), np.empty(experts, np.int64), np.empty(slots, np.int64)
    shares = np.empty(slots)
    for layer in range(layers):
        first[:], filled[:] = 0, 0
        for slot in range(slots):
            first[expert_of_slot[layer, slot] + 1] += 1
        for expert in range(experts):
            first[expert + 1] += first[expert]
        for slot in range(slots):
            expert = expert_of_slot[layer, slot]
            of_expert[first[expert] + filled[expert]] = slot
            filled[expert] += 1
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
        layout.gpu_of_slot,
        layout.node_of_gpu,
        RULES[rule],
    )
