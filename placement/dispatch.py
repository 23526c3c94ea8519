"""Which copy of an expert a token goes to, as engines decide it, and what that makes each GPU carry.

Tokens come from all GPUs alike (attention is data-parallel).  The rules:

- `equal`: every copy gets the same share, each expert by itself.  SGLang's `dynamic`.
- `hash`: every copy gets the same share, and one number picks for all experts of a token (`placement.traffic.hashing`).
  vLLM, by a hash of the token's place: GPUs carry what they do under `equal`.
- `nearest`: SGLang's `static`, read in `expert_location.py` (0.5.23): the copy on the token's own GPU; else, unless all
  copies lie on one node, the first on its own, by slot; all other GPUs share out the copies evenly among themselves.

An expert of one copy needs no rule.
"""

import numpy as np
from numba import float64, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints
from placement.layout import Layout
from placement.options import Dispatch

__all__ = ["EQUAL", "NEAREST", "RULES", "Dispatch", "gpu_loads", "shares_of_copies"]

EQUAL, NEAREST = 0, 1  # as compiled code knows them
RULES = {Dispatch.EQUAL: EQUAL, Dispatch.HASH: EQUAL, Dispatch.NEAREST: NEAREST}  # by what GPUs carry


@jit_inner
def shares_of_copies(slots: Ints, gpu_of_slot: Ints, node_of_gpu: Ints, rule: int, shares: Floats) -> None:
    """The share of its expert's tokens that each copy takes; `slots`, rising, are where the copies lie."""
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
