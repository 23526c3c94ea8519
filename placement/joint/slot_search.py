"""Local search over replica counts and packing together, for any number of slots and any speeds.

At a ceiling T (see `placement.joint.layer_state`) the GPU with the highest cost is relieved by the best of

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
from placement.arrays import Floats, Ints
from placement.joint.layer_state import LayerState, changed, lay, overload, peak, put, shifts, swap

LITTLE = 1e-13  # an improvement below this is rounding
STUCK = 8  # price rises without a better maximum after which a ceiling is given up


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


@jit_entry(
    int64[:, ::1](float64[:, ::1], int64[:, ::1], int64[::1], int64[::1], float64[::1], float64[::1], int64, float64)
)
def search_slots(  # noqa: PLR0917 - compiled code takes no keywords
    parts: Floats, start: Ints, first: Ints, gpu_of: Ints, shares: Floats, proven: Floats, steps: int, tolerance: float
) -> Ints:
    """[layers, slots]: never less even than the start, a legal placement; `tolerance` of the even share."""
    layers, slots = start.shape
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
