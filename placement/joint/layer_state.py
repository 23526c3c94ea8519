"""One layer while counts and packing are searched together, as compiled code sees it.

Loads are parts of the layer's tokens.  A ceiling T allows GPU g the load T share_g; what it carries beyond costs

    price_g (load_g - T share_g)^2 / share_g,

and 0 in all is a placement under the ceiling.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleet.numba_cache import jit_inner
from placement.arrays import Floats, Ints

Flags = npt.NDArray[np.bool_]


class Board(NamedTuple):
    """The slots of expert e are slots_of[e, : counts[e]], in no order."""

    tokens: Floats  # [experts]: parts of the layer's tokens
    expert_of: Ints  # [slots]
    gpu_of: Ints  # [slots]
    first: Ints  # [GPUs + 1]: slots of each GPU
    shares: Floats  # [GPUs]: of all speed
    counts: Ints  # [experts]
    slots_of: Ints  # [experts, most copies]
    holds: Flags  # [GPUs, experts]
    loads: Floats  # [GPUs]
    prices: Floats  # [GPUs]


@jit_inner
def lay(board: Board, expert_of: Ints) -> None:
    """Start from these slots, all prices 1."""
    board.counts.fill(0)
    board.holds[:] = False
    board.loads.fill(0.0)
    board.prices.fill(1.0)
    for slot in range(len(expert_of)):
        expert = expert_of[slot]
        board.expert_of[slot] = expert
        board.slots_of[expert, board.counts[expert]] = slot
        board.counts[expert] += 1
        board.holds[board.gpu_of[slot], expert] = True
    for slot in range(len(expert_of)):
        board.loads[board.gpu_of[slot]] += board.tokens[expert_of[slot]] / board.counts[expert_of[slot]]


@jit_inner
def peak(board: Board) -> float:
    """The fullest GPU over its even share."""
    fullest = 0.0
    for gpu in range(len(board.loads)):
        fullest = max(fullest, board.loads[gpu] / board.shares[gpu])
    return fullest


@jit_inner
def beyond(board: Board, ceiling: float, gpu: int, load: float) -> float:
    """What this load would cost on a GPU."""
    over = load - ceiling * board.shares[gpu]
    return float(board.prices[gpu] * over * over / board.shares[gpu]) if over > 0 else 0.0


@jit_inner
def changed(board: Board, ceiling: float, gpu: int, more: float) -> float:
    """How the cost of a GPU changes with its load."""
    load = board.loads[gpu]
    return float(beyond(board, ceiling, gpu, load + more) - beyond(board, ceiling, gpu, load))


@jit_inner
def shifts(board: Board, expert: int, step: int) -> float:
    """By how much each copy's load changes when the expert has `step` copies more."""
    now = board.counts[expert]
    return float(board.tokens[expert] / (now + step) - board.tokens[expert] / now)


@jit_inner
def put(board: Board, slot: int, expert: int) -> None:
    """A copy of `expert` takes the place of the one there, which is not its expert's last."""
    gone, gpu = board.expert_of[slot], board.gpu_of[slot]
    for old in (gone, expert):
        for at in range(board.counts[old]):
            board.loads[board.gpu_of[board.slots_of[old, at]]] -= board.tokens[old] / board.counts[old]
    at = 0
    while board.slots_of[gone, at] != slot:
        at += 1
    board.counts[gone] -= 1
    board.slots_of[gone, at] = board.slots_of[gone, board.counts[gone]]
    board.slots_of[expert, board.counts[expert]] = slot
    board.counts[expert] += 1
    board.holds[gpu, gone], board.holds[gpu, expert] = False, True
    board.expert_of[slot] = expert
    for new in (gone, expert):
        for at in range(board.counts[new]):
            board.loads[board.gpu_of[board.slots_of[new, at]]] += board.tokens[new] / board.counts[new]


@jit_inner
def swap(board: Board, one: int, other: int) -> None:
    """Two copies of different experts change places."""
    a, b = board.expert_of[one], board.expert_of[other]
    more = board.tokens[b] / board.counts[b] - board.tokens[a] / board.counts[a]
    for slot, gone, come, sign in ((one, a, b, 1.0), (other, b, a, -1.0)):
        gpu = board.gpu_of[slot]
        board.loads[gpu] += sign * more
        board.holds[gpu, gone] = False
        at = 0
        while board.slots_of[gone, at] != slot:
            at += 1
        board.slots_of[gone, at] = -slot - 1  # until both have moved
        board.expert_of[slot] = come
    for slot, gone, partner in ((one, a, other), (other, b, one)):
        for at in range(board.counts[gone]):
            if board.slots_of[gone, at] == -slot - 1:
                board.slots_of[gone, at] = partner
        board.holds[board.gpu_of[partner], gone] = True
