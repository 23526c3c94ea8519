"""The state of one layer during the joint search over counts and packing, for compiled code.

Loads are parts of the layer's tokens.  A ceiling T allows GPU g the load T share_g; a higher load costs

    price_g (load_g - T share_g)^2 / share_g,

and a total of 0 is a placement under the ceiling.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleet.numba_cache import jit_inner
from placement.arrays import Floats, Ints

Flags = npt.NDArray[np.bool_]


class LayerState(NamedTuple):
    """The slots of expert e are slots_of[e, : counts[e]], unordered."""

    tokens: Floats  # [experts]: parts of the layer's tokens
    expert_of: Ints  # [slots]
    gpu_of: Ints  # [slots]
    first: Ints  # [GPUs + 1]: slots of each GPU
    shares: Floats  # [GPUs]: of the total speed
    counts: Ints  # [experts]
    slots_of: Ints  # [experts, most copies]
    holds: Flags  # [GPUs, experts]
    loads: Floats  # [GPUs]
    prices: Floats  # [GPUs]


@jit_inner
def lay(state: LayerState, expert_of: Ints) -> None:
    """Start from these slots, all prices 1."""
    state.counts.fill(0)
    state.holds[:] = False
    state.loads.fill(0.0)
    state.prices.fill(1.0)
    for slot in range(len(expert_of)):
        expert = expert_of[slot]
        state.expert_of[slot] = expert
        state.slots_of[expert, state.counts[expert]] = slot
        state.counts[expert] += 1
        state.holds[state.gpu_of[slot], expert] = True
    for slot in range(len(expert_of)):
        state.loads[state.gpu_of[slot]] += state.tokens[expert_of[slot]] / state.counts[expert_of[slot]]


@jit_inner
def peak(state: LayerState) -> float:
    """The maximum load over the even share."""
    fullest = 0.0
    for gpu in range(len(state.loads)):
        fullest = max(fullest, state.loads[gpu] / state.shares[gpu])
    return fullest


@jit_inner
def overload(state: LayerState, ceiling: float, gpu: int, load: float) -> float:
    """The cost of this load on a GPU."""
    over = load - ceiling * state.shares[gpu]
    return float(state.prices[gpu] * over * over / state.shares[gpu]) if over > 0 else 0.0


@jit_inner
def changed(state: LayerState, ceiling: float, gpu: int, more: float) -> float:
    """The change of a GPU's cost with its load."""
    load = state.loads[gpu]
    return float(overload(state, ceiling, gpu, load + more) - overload(state, ceiling, gpu, load))


@jit_inner
def shifts(state: LayerState, expert: int, step: int) -> float:
    """The change of each copy's load when the expert gets `step` more copies."""
    now = state.counts[expert]
    return float(state.tokens[expert] / (now + step) - state.tokens[expert] / now)


@jit_inner
def put(state: LayerState, slot: int, expert: int) -> None:
    gone, gpu = state.expert_of[slot], state.gpu_of[slot]
    for old in (gone, expert):
        for at in range(state.counts[old]):
            state.loads[state.gpu_of[state.slots_of[old, at]]] -= state.tokens[old] / state.counts[old]
    at = 0
    while state.slots_of[gone, at] != slot:
        at += 1
    state.counts[gone] -= 1
    state.slots_of[gone, at] = state.slots_of[gone, state.counts[gone]]
    state.slots_of[expert, state.counts[expert]] = slot
    state.counts[expert] += 1
    state.holds[gpu, gone], state.holds[gpu, expert] = False, True
    state.expert_of[slot] = expert
    for new in (gone, expert):
        for at in range(state.counts[new]):
            state.loads[state.gpu_of[state.slots_of[new, at]]] += state.tokens[new] / state.counts[new]


@jit_inner
def swap(state: LayerState, one: int, other: int) -> None:
    a, b = state.expert_of[one], state.expert_of[other]
    more = state.tokens[b] / state.counts[b] - state.tokens[a] / state.counts[a]
    for slot, gone, come, sign in ((one, a, b, 1.0), (other, b, a, -1.0)):
        gpu = state.gpu_of[slot]
        state.loads[gpu] += sign * more
        state.holds[gpu, gone] = False
        at = 0
        while state.slots_of[gone, at] != slot:
            at += 1
        state.slots_of[gone, at] = -slot - 1  # until both have moved
        state.expert_of[slot] = come
    for slot, gone, partner in ((one, a, other), (other, b, one)):
        for at in range(state.counts[gone]):
            if state.slots_of[gone, at] == -slot - 1:
                state.slots_of[gone, at] = partner
        state.holds[state.gpu_of[partner], gone] = True
