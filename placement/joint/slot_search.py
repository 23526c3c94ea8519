"""Local search over replica counts and packing together, for any number of slots and any speeds.

docs/explanation/placement/balance.md has the cost of a load above the ceiling T.  A total of 0 is a placement under the
ceiling.  The GPU with the highest cost is relieved by the best of

    swap     exchange one of its copies with another GPU's,
    recount  a slot anywhere gives up its copy, if not its expert's last, for one of an expert that the GPU holds,
    replace  one of the GPU's own copies, if not its expert's last, gives way to one of any expert,

each evaluated on every GPU that holds the two experts.  Where none helps, the prices of all GPUs above the ceiling rise
(breakout, Morris 1993).  Ceilings are bisected between the proven bound and the best result.
"""

from typing import NamedTuple

import numpy as np
from numba import float64, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Flags, Floats, Ints
from placement.dispatch import LAYOUT
from placement.layout import LayoutArrays

LITTLE = 1e-13  # an improvement below this is rounding
STUCK = 8  # price rises without a better maximum after which a ceiling is given up


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


class Move(NamedTuple):
    """`other` is a slot to swap with, or -1: then `expert` takes `slot`."""

    gain: float
    slot: int
    other: int
    expert: int


@jit_inner
def _recount(state: LayerState, ceiling: float, slot: int, expert: int) -> float:
    """The change of cost when `expert` takes the slot."""
    gone, gpu = state.expert_of[slot], state.gpu_of[slot]
    fewer, more = shifts(state, expert, 1), shifts(state, gone, -1)
    here = state.tokens[expert] / (state.counts[expert] + 1) - state.tokens[gone] / state.counts[gone]
    total = changed(state, ceiling, gpu, here)
    for at in range(state.counts[expert]):
        there = state.gpu_of[state.slots_of[expert, at]]
        total += changed(state, ceiling, there, fewer + (more if state.holds[there, gone] else 0.0))
    for at in range(state.counts[gone]):
        there = state.gpu_of[state.slots_of[gone, at]]
        if there != gpu and not state.holds[there, expert]:
            total += changed(state, ceiling, there, more)
    return total


@jit_inner
def _best_swap(state: LayerState, ceiling: float, gpu: int, best: Move) -> Move:
    for slot in range(state.first[gpu], state.first[gpu + 1]):
        mine = state.expert_of[slot]
        load = state.tokens[mine] / state.counts[mine]
        for other in range(len(state.expert_of)):
            there, yours = state.gpu_of[other], state.expert_of[other]
            less = load - state.tokens[yours] / state.counts[yours]
            if less <= 0 or there == gpu or state.holds[there, mine] or state.holds[gpu, yours]:
                continue
            gain = -changed(state, ceiling, gpu, -less) - changed(state, ceiling, there, less)
            if gain > best.gain:
                best = Move(gain, slot, other, -1)
    return best


@jit_inner
def _best_recount(state: LayerState, ceiling: float, gpu: int, best: Move) -> Move:
    for slot in range(len(state.expert_of)):
        there, gone = state.gpu_of[slot], state.expert_of[slot]
        if there == gpu or state.counts[gone] < 2:
            continue
        for place in range(state.first[gpu], state.first[gpu + 1]):
            expert = state.expert_of[place]
            if expert != gone and not state.holds[there, expert]:
                gain = -_recount(state, ceiling, slot, expert)
                if gain > best.gain:
                    best = Move(gain, slot, -1, expert)
    for slot in range(state.first[gpu], state.first[gpu + 1]):
        if state.counts[state.expert_of[slot]] > 1:
            for expert in range(len(state.tokens)):
                if not state.holds[gpu, expert]:
                    gain = -_recount(state, ceiling, slot, expert)
                    if gain > best.gain:
                        best = Move(gain, slot, -1, expert)
    return best


@jit_inner
def _costliest_gpu(state: LayerState, ceiling: float, passed: Ints) -> int:
    """The GPU with the highest cost that was not skipped; -1: no GPU has a cost."""
    most, gpu = 0.0, -1
    for at in range(len(state.loads)):
        if not passed[at]:
            cost = overload(state, ceiling, at, state.loads[at])
            if cost > most:
                most, gpu = cost, at
    return gpu


@jit_inner
def _under(state: LayerState, ceiling: float, kept: Ints, reached: float, steps: int) -> float:
    """Search at one ceiling; saves the best slots found and returns their maximum load."""
    passed = np.zeros(len(state.loads), np.int64)
    stuck, waiting = 0, False
    for _ in range(steps):
        gpu = _costliest_gpu(state, ceiling, passed)
        if gpu < 0:
            if not waiting or stuck == STUCK:
                break
            stuck += 1
            for at in range(len(state.loads)):
                state.prices[at] += state.loads[at] > ceiling * state.shares[at]
            passed.fill(0)
            waiting = False
            continue
        move = _best_recount(state, ceiling, gpu, _best_swap(state, ceiling, gpu, Move(LITTLE, -1, -1, -1)))
        if move.slot < 0:
            passed[gpu], waiting = 1, True
            continue
        if move.other >= 0:
            swap(state, move.slot, move.other)
        else:
            put(state, move.slot, move.expert)
        passed.fill(0)
        waiting = False
        now = peak(state)
        if now < reached - LITTLE:
            reached, stuck = now, 0
            for slot in range(len(kept)):
                kept[slot] = state.expert_of[slot]
    return reached


@jit_entry(int64[:, ::1](float64[:, ::1], int64[:, ::1], LAYOUT, float64[::1], int64, float64))
def search_slots(  # noqa: PLR0917 - compiled code takes no keywords
    parts: Floats, start: Ints, layout: LayoutArrays, proven: Floats, steps: int, tolerance: float
) -> Ints:
    """[layers, slots]: never less even than the start, a legal placement; `tolerance` of the even share."""
    layers, slots = start.shape
    gpu_of, _, first, shares = layout
    experts, gpus = parts.shape[1], len(shares)
    kept = start.copy()
    most = min(gpus, slots - experts + 1)
    for layer in range(layers):
        state = LayerState(
            parts[layer],
            np.empty(slots, np.int64),
            gpu_of,
            first,
            shares,
            np.empty(experts, np.int64),
            np.empty((experts, most), np.int64),
            np.empty((gpus, experts), np.bool_),
            np.empty(gpus),
            np.empty(gpus),
        )
        lay(state, kept[layer])
        low, high = proven[layer], peak(state)
        while high - low > tolerance:
            ceiling = (low + high) / 2
            lay(state, kept[layer])
            high = _under(state, ceiling, kept[layer], high, steps)
            if high > ceiling:
                low = ceiling
    return kept
