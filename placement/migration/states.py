"""A placement of one layer as the search sees it, and what one step does to the GPUs' loads.

Times are in units of what each GPU would work were all equally busy, so that 1 is even.
"""

from typing import NamedTuple

from fleet.compiled import part
from placement.arrays import Floats, Ints
from placement.dispatch import EQUAL, shares_of_copies

NONE = -1


class Ground(NamedTuple):
    """What no step changes."""

    loaded: Ints  # [GPUs, experts]: 1 where the placement now loaded holds the expert
    tokens: Floats  # [experts]
    pace: Floats  # [GPUs]: time per token
    gpu_of_slot: Ints
    node_of_gpu: Ints
    every_gpu: Ints  # 0, 1, ...: where copies lie, for rules that ask by slot
    keys: Ints  # [GPUs, experts]: random bits of each copy; their exclusive or names a state
    rule: int
    target: float


class State(NamedTuple):
    """A placement, read."""

    holders: Ints  # [experts, GPUs]: where the copies lie, rising
    copies: Ints  # [experts]
    parts: Floats  # [experts, GPUs]: the share of its expert's tokens that each copy takes
    holds: Ints  # [GPUs, experts]
    times: Floats  # [GPUs]


class Change(NamedTuple):
    """What one step does to the GPUs' loads."""

    tokens: Floats  # [GPUs]
    touched: Ints  # how many GPUs, then which
    among: Ints  # scratch: holders after the step
    shares: Floats  # scratch: and their shares


@part
def read(row: Ints, ground: Ground, state: State) -> int:
    """Fill in what a placement holds and how long each GPU works; which works longest."""
    state.copies[:], state.holds[:], state.times[:] = 0, 0, 0.0
    for slot in range(len(row)):
        expert, gpu = row[slot], ground.gpu_of_slot[slot]
        state.holders[expert, state.copies[expert]] = gpu
        state.copies[expert] += 1
        state.holds[gpu, expert] = 1
    for expert in range(len(ground.tokens)):
        holders = state.holders[expert, : state.copies[expert]]
        shares_of_copies(holders, ground.every_gpu, ground.node_of_gpu, ground.rule, state.parts[expert])
        for c in range(len(holders)):
            state.times[holders[c]] += ground.tokens[expert] * state.parts[expert, c]
    state.times[:] *= ground.pace
    return int(state.times.argmax())


@part
def excess(time: float, target: float) -> float:
    """What a GPU's time counts in a score."""
    over = time - target
    return over * over if over > 0 else 0.0


@part
def exchanged(  # noqa: PLR0917 - compiled code takes no keywords
    score: float, a: int, gpu: int, b: int, other: int, state: State, ground: Ground, change: Change
) -> float:
    """The score once `a` went from `gpu` to `other` and `b` came back."""
    _relocate(a, gpu, other, state, ground, change)
    _relocate(b, other, gpu, state, ground, change)
    return _settled(score, state, ground, change)


@part
def overwritten(  # noqa: PLR0917 - compiled code takes no keywords
    score: float, a: int, gpu: int, b: int, state: State, ground: Ground, change: Change
) -> float:
    """The score once a copy of `a` on `gpu` gave way to one of `b`."""
    _relocate(a, gpu, NONE, state, ground, change)
    _relocate(b, NONE, gpu, state, ground, change)
    return _settled(score, state, ground, change)


@part
def _relocate(  # noqa: PLR0917 - compiled code takes no keywords
    expert: int, leaves: int, enters: int, state: State, ground: Ground, change: Change
) -> None:
    """Note what GPUs carry more or less once a copy left one GPU, or NONE, and came to another, or NONE."""
    among, holders, parts, tokens = change.among, state.holders[expert], state.parts[expert], ground.tokens[expert]
    copies, equal = state.copies[expert], ground.rule == EQUAL
    n = _holders_after(holders, copies, leaves, enters, among)
    if not equal:
        shares_of_copies(among[:n], ground.every_gpu, ground.node_of_gpu, ground.rule, change.shares)
    for c in range(n):
        _carry(among[c], tokens * (1.0 / n if equal else change.shares[c]), change.tokens, change.touched)
    for c in range(copies):
        _carry(holders[c], -tokens * parts[c], change.tokens, change.touched)


@part
def _settled(score: float, state: State, ground: Ground, change: Change) -> float:
    """The score with the change, which is taken back."""
    touched, tokens, times, pace, target = change.touched, change.tokens, state.times, ground.pace, ground.target
    for i in range(1, touched[0] + 1):
        gpu = touched[i]
        score += excess(times[gpu] + tokens[gpu] * pace[gpu], target) - excess(times[gpu], target)
        tokens[gpu] = 0.0  # a GPU noted twice counts once
    touched[0] = 0
    return score


@part
def _holders_after(holders: Ints, copies: int, leaves: int, enters: int, among: Ints) -> int:
    """Write where the copies lie after the move, rising; how many."""
    n, entered = 0, enters == NONE
    for c in range(copies):
        gpu = holders[c]
        if not entered and enters < gpu:
            among[n] = enters
            n, entered = n + 1, True
        if gpu != leaves:
            among[n] = gpu
            n += 1
    if not entered:
        among[n] = enters
        n += 1
    return n


@part
def _carry(gpu: int, tokens: float, changed: Floats, touched: Ints) -> None:
    if changed[gpu] == 0.0:
        touched[0] += 1
        touched[touched[0]] = gpu
    changed[gpu] += tokens
