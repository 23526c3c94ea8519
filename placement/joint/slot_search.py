"""Local search over replica counts and packing together, for any number of slots and any speeds.

At a ceiling T (see `placement.joint.layer_state`) the GPU that costs most is relieved by the best of

    swap     one of its copies changes places with another GPU's,
    recount  a slot anywhere gives up its copy, if not its expert's last, for one of an expert that the GPU holds,
    replace  one of the GPU's own copies, if not its expert's last, gives way to one of any expert,

each taken with all it does to every GPU that holds the two experts.  Where none helps, the prices of all GPUs above the
ceiling rise (breakout, Morris 1993).  Ceilings are bisected between the proven bound and what was reached.
"""

from typing import NamedTuple

import numpy as np
from numba import float64, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints
from placement.joint.layer_state import Board, beyond, changed, lay, peak, put, shifts, swap

LITTLE = 1e-13  # an improvement below this is rounding
STUCK = 8  # price rises without a better peak after which a ceiling is given up


class Move(NamedTuple):
    """`other` is a slot to swap with, or -1: then `expert` comes to `slot`."""

    gain: float
    slot: int
    other: int
    expert: int


@jit_inner
def _recount(board: Board, ceiling: float, slot: int, expert: int) -> float:
    """The change of cost when `expert` takes the slot."""
    gone, gpu = board.expert_of[slot], board.gpu_of[slot]
    fewer, more = shifts(board, expert, 1), shifts(board, gone, -1)
    here = board.tokens[expert] / (board.counts[expert] + 1) - board.tokens[gone] / board.counts[gone]
    total = changed(board, ceiling, gpu, here)
    for at in range(board.counts[expert]):
        there = board.gpu_of[board.slots_of[expert, at]]
        total += changed(board, ceiling, there, fewer + (more if board.holds[there, gone] else 0.0))
    for at in range(board.counts[gone]):
        there = board.gpu_of[board.slots_of[gone, at]]
        if there != gpu and not board.holds[there, expert]:
            total += changed(board, ceiling, there, more)
    return total


@jit_inner
def _best_swap(board: Board, ceiling: float, gpu: int, best: Move) -> Move:
    for slot in range(board.first[gpu], board.first[gpu + 1]):
        mine = board.expert_of[slot]
        load = board.tokens[mine] / board.counts[mine]
        for other in range(len(board.expert_of)):
            there, yours = board.gpu_of[other], board.expert_of[other]
            less = load - board.tokens[yours] / board.counts[yours]
            if less <= 0 or there == gpu or board.holds[there, mine] or board.holds[gpu, yours]:
                continue
            gain = -changed(board, ceiling, gpu, -less) - changed(board, ceiling, there, less)
            if gain > best.gain:
                best = Move(gain, slot, other, -1)
    return best


@jit_inner
def _best_recount(board: Board, ceiling: float, gpu: int, best: Move) -> Move:
    for slot in range(len(board.expert_of)):
        there, gone = board.gpu_of[slot], board.expert_of[slot]
        if there == gpu or board.counts[gone] < 2:
            continue
        for place in range(board.first[gpu], board.first[gpu + 1]):
            expert = board.expert_of[place]
            if expert != gone and not board.holds[there, expert]:
                gain = -_recount(board, ceiling, slot, expert)
                if gain > best.gain:
                    best = Move(gain, slot, -1, expert)
    for slot in range(board.first[gpu], board.first[gpu + 1]):
        if board.counts[board.expert_of[slot]] > 1:
            for expert in range(len(board.tokens)):
                if not board.holds[gpu, expert]:
                    gain = -_recount(board, ceiling, slot, expert)
                    if gain > best.gain:
                        best = Move(gain, slot, -1, expert)
    return best


@jit_inner
def _dearest(board: Board, ceiling: float, passed: Ints) -> int:
    """The GPU that costs most and was not passed over; -1: none costs anything."""
    most, gpu = 0.0, -1
    for at in range(len(board.loads)):
        if not passed[at]:
            cost = beyond(board, ceiling, at, board.loads[at])
            if cost > most:
                most, gpu = cost, at
    return gpu


@jit_inner
def _under(board: Board, ceiling: float, kept: Ints, reached: float, steps: int) -> float:
    """Search at one ceiling; keeps the best slots seen and returns their peak."""
    passed = np.zeros(len(board.loads), np.int64)
    stuck, waiting = 0, False
    for _ in range(steps):
        gpu = _dearest(board, ceiling, passed)
        if gpu < 0:
            if not waiting or stuck == STUCK:
                break
            stuck += 1
            for at in range(len(board.loads)):
                board.prices[at] += board.loads[at] > ceiling * board.shares[at]
            passed.fill(0)
            waiting = False
            continue
        move = _best_recount(board, ceiling, gpu, _best_swap(board, ceiling, gpu, Move(LITTLE, -1, -1, -1)))
        if move.slot < 0:
            passed[gpu], waiting = 1, True
            continue
        if move.other >= 0:
            swap(board, move.slot, move.other)
        else:
            put(board, move.slot, move.expert)
        passed.fill(0)
        waiting = False
        now = peak(board)
        if now < reached - LITTLE:
            reached, stuck = now, 0
            for slot in range(len(kept)):
                kept[slot] = board.expert_of[slot]
    return reached


@jit_entry(
    int64[:, ::1](float64[:, ::1], int64[:, ::1], int64[::1], int64[::1], float64[::1], float64[::1], int64, float64)
)
def repacked(  # noqa: PLR0917 - compiled code takes no keywords
    parts: Floats, start: Ints, first: Ints, gpu_of: Ints, shares: Floats, proven: Floats, steps: int, tolerance: float
) -> Ints:
    """[layers, slots]: never less even than the start, a legal placement; `tolerance` of the even share."""
    layers, slots = start.shape
    experts, gpus = parts.shape[1], len(shares)
    kept = start.copy()
    most = min(gpus, slots - experts + 1)
    for layer in range(layers):
        board = Board(
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
        lay(board, kept[layer])
        low, high = proven[layer], peak(board)
        while high - low > tolerance:
            ceiling = (low + high) / 2
            lay(board, kept[layer])
            high = _under(board, ceiling, kept[layer], high, steps)
            if high > ceiling:
                low = ceiling
    return kept
