"""The state of one layer in the search, and the effect of single copies that arrive or leave.

Times are in units of a GPU's time under even loads, so 1 is even.  A placement's score is its excess, the sum over GPUs
of max(0, time - target)^2.

Arrays are taken out of their tuples before the inner loops: there that would cost more than the arithmetic.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleet.numba_cache import jit_inner
from placement.arrays import Experts, Floats, Ints
from placement.dispatch import EQUAL, shares_of_copies

NONE = -1
Flags = npt.NDArray[np.int8]


class LayerProblem(NamedTuple):
    """The fixed part."""

    loaded: Flags  # [GPUs, experts]: 1 where the current placement holds the expert
    tokens: Floats  # [experts]
    pace: Floats  # [GPUs]: time per token
    gpu_of_slot: Ints
    node_of_gpu: Ints
    every_gpu: Ints  # 0, 1, ...: places of copies, for rules by slot
    rule: int
    target: float


class State(NamedTuple):
    """The variable part."""

    holders: Ints  # [experts, GPUs]: places of the copies, rising
    copies: Ints  # [experts]
    parts: Floats  # [experts, GPUs]: share of each copy
    holds: Flags  # [GPUs, experts]
    times: Floats  # [GPUs]
    among: Ints  # scratch: holders after a change
    shares: Floats  # scratch: their shares


class Changes(NamedTuple):
    """Copies that arrive or leave; NONE as expert, and an infinite effect, where impossible."""

    expert: Ints
    leaves: Ints  # this GPU, or NONE
    enters: Ints  # and this one, or NONE
    effect: Floats  # [changes, 3]: time added to the most loaded GPU, to the other GPU, and excess of all others


@jit_inner
def read(row: Experts, problem: LayerProblem, state: State) -> int:
    """Compute holdings and times of a placement; returns the most loaded GPU."""
    holders, copies, parts, holds, times = state.holders, state.copies, state.parts, state.holds, state.times
    gpu_of_slot, node_of_gpu, every, tokens = (
        problem.gpu_of_slot,
        problem.node_of_gpu,
        problem.every_gpu,
        problem.tokens,
    )
    pace, rule = problem.pace, problem.rule
    for gpu in range(len(times)):
        times[gpu] = 0.0
        for expert in range(len(copies)):
            holds[gpu, expert] = 0
    for expert in range(len(copies)):
        copies[expert] = 0
    for slot in range(len(row)):
        expert, gpu = row[slot], gpu_of_slot[slot]
        holders[expert, copies[expert]] = gpu
        copies[expert] += 1
        holds[gpu, expert] = 1
    for expert in range(len(tokens)):
        n = copies[expert]
        if rule != EQUAL and n > 1:
            shares_of_copies(holders[expert, :n], every, node_of_gpu, rule, parts[expert])
        for c in range(n):
            if rule == EQUAL or n == 1:
                parts[expert, c] = 1.0 / n
            times[holders[expert, c]] += tokens[expert] * parts[expert, c] * pace[holders[expert, c]]
    fullest = 0
    for gpu in range(len(times)):
        if times[gpu] > times[fullest]:
            fullest = gpu
    return fullest


@jit_inner
def excess(time: float, target: float) -> float:
    """The contribution of a GPU's time to the score."""
    over = time - target
    return over * over if over > 0 else 0.0


@jit_inner
def evaluate_changes(fullest: int, problem: LayerProblem, state: State, changes: Changes) -> None:
    """The effect of each change alone."""
    expert_of, leaving, entering, effect = changes.expert, changes.leaves, changes.enters, changes.effect
    holders, copies, parts, among, shares = state.holders, state.copies, state.parts, state.among, state.shares
    every, node_of_gpu, pace, tokens, rule = (
        problem.every_gpu,
        problem.node_of_gpu,
        problem.pace,
        problem.tokens,
        problem.rule,
    )
    for at in range(len(expert_of)):
        expert = expert_of[at]
        if expert == NONE:
            effect[at, 0] = np.inf
            continue
        leaves, enters, n = leaving[at], entering[at], copies[expert]
        effect[at, 0] = effect[at, 1] = effect[at, 2] = 0.0
        if min(leaves, enters) != NONE and (n == 1 or rule == EQUAL):  # no other copy changes
            effect[at, 0 if leaves == fullest else 1] = -tokens[expert] * parts[expert, 0] * pace[leaves]
            effect[at, 0 if enters == fullest else 1] = tokens[expert] * parts[expert, 0] * pace[enters]
            continue
        after = _holders_after(expert, leaves, enters, holders, n, among)
        if rule == EQUAL:
            for c in range(after):
                shares[c] = 1.0 / after
        else:
            shares_of_copies(among[:after], every, node_of_gpu, rule, shares)
        other = enters if leaves in (fullest, NONE) else leaves
        _add_effects(at, fullest, other, after, problem, state, changes)


@jit_inner
def _add_effects(  # noqa: PLR0917 - compiled code takes no keywords
    at: int, fullest: int, other: int, after: int, problem: LayerProblem, state: State, changes: Changes
) -> None:
    """Add each holder's gain or loss to the most loaded GPU, the other one, and the rest."""
    expert, effect, times, parts = changes.expert[at], changes.effect, state.times, state.parts
    holders, among, shares, pace, target = state.holders, state.among, state.shares, problem.pace, problem.target
    before, tokens = state.copies[expert], problem.tokens[expert]
    i = j = 0
    while i < before or j < after:  # both rise
        gpu = holders[expert, i] if j == after or (i < before and holders[expert, i] <= among[j]) else among[j]
        more = 0.0
        if i < before and holders[expert, i] == gpu:
            more -= parts[expert, i]
            i += 1
        if j < after and among[j] == gpu:
            more += shares[j]
            j += 1
        more *= tokens * pace[gpu]
        if gpu == fullest:
            effect[at, 0] = more
        elif gpu == other:
            effect[at, 1] = more
        else:
            effect[at, 2] += excess(times[gpu] + more, target) - excess(times[gpu], target)


@jit_inner
def _holders_after(  # noqa: PLR0917 - compiled code takes no keywords
    expert: int, leaves: int, enters: int, holders: Ints, copies: int, among: Ints
) -> int:
    """Write the places of the copies after the change, rising; returns their number."""
    n, entered = 0, enters == NONE
    for c in range(copies):
        gpu = holders[expert, c]
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
