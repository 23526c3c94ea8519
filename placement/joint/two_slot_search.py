"""Replica counts and pairing together, layer by layer, for GPUs with at most two slots: the lowest feasible ceiling.

docs/explanation/placement/balance.md has the objective of the count search.  A ceiling counts as infeasible when a
short run of the certificate proves it, or when the count search gives up.  Two copies of one expert can only meet in
the middle of the pairing.  One of them then swaps with a copy of another GPU, where the greater load of the two GPUs
is lowest.

In the count search a least bad move is made where none helps; its experts are then tabu for a few steps.  All values
except weights are whole numbers.  A copy changes the first rows up to its place, so a move is a few steps of a
staircase, and one pass over the rows gives its cost.
"""

from typing import NamedTuple

import numpy as np
from numba import boolean, float64, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Floats, Ints
from placement.bounds.lower_bound import two_slot_cases
from placement.bounds.two_slot import TWOS, TwoSlotCase, is_infeasible, min_count, place, thresholds
from placement.layout import Layout

GIVERS, TAKERS = 6, 10  # the best givers and takers of a copy, tried with each other
REST_STEPS = 3
NOWHERE = 2**40  # the place of copies that would weigh more than the ceiling
NEVER = 2**60  # of illegal moves
FEWER, NOW, MORE, REST, GIVES, TAKES = range(6)  # of an expert: places with one copy less, the same, one more; ...
BROKEN, PRICE, STAIR = range(3)  # of a row: v, pi, and the steps of a move under trial
TOLERANCE = 5e-4  # of the even load
PROOF_STEPS = 60
ALONE = -1  # in place of a second copy


def best_pairs(tokens: Floats, *, layout: Layout, proven: Floats, steps: int) -> tuple[Ints, Floats]:
    """[layers, GPUs, 2], GPUs of one slot first, and each layer's maximum load, infinite if illegal; even load = 1."""
    cases, counts = two_slot_cases(tokens, layout=layout)
    found = [_narrowed(*layer, steps) for layer in zip(cases, counts, proven.tolist(), strict=True)]
    return np.array([pairs for pairs, _ in found]), np.array([peak for _, peak in found])


def _narrowed(case: TwoSlotCase, counts: Ints, low: float, steps: int) -> tuple[Ints, float]:
    """The pairs of the best counts, and their maximum load."""
    pairs, high = paired(case.weights, counts, singles=case.singles)
    while high - low > TOLERANCE:
        ceiling, trial = (low + min(high, 2 * low + 1)) / 2, counts.copy()
        reached, kept = np.inf, pairs
        if not is_infeasible(case, ceiling, PROOF_STEPS) and counts_under(case, ceiling, trial, steps):
            kept, reached = paired(case.weights, trial, singles=case.singles)
        if reached < high:
            counts, pairs, high = trial, kept, reached
        if reached > ceiling:
            low = ceiling
    return pairs, high


def paired(weights: Floats, counts: Ints, *, singles: int) -> tuple[Ints, float]:
    """[GPUs, 2], GPUs of one slot first, of one layer; and the maximum load, infinite if illegal."""
    loads = np.append(weights / counts, 0.0)  # the last is the load of ALONE
    experts = np.repeat(np.arange(len(counts)), counts)
    falling = experts[np.argsort(-loads[experts], kind="stable")]
    first = falling[: (len(falling) + singles) // 2]
    pairs = np.column_stack([first, np.concatenate([np.full(singles, ALONE), falling[: len(first) - 1 : -1]])])
    for gpu in np.flatnonzero(pairs[:, 0] == pairs[:, 1]).tolist():
        if pairs[gpu, 0] == pairs[gpu, 1] and not _part(pairs, gpu, loads):
            return pairs, float("inf")
    return pairs, float(loads[pairs].sum(axis=1).max())


def _part(pairs: Ints, gpu: int, loads: Floats) -> bool:
    """Separate the two copies on a GPU; false where every other GPU holds the expert too."""
    expert = pairs[gpu, 0]
    given, kept = pairs, pairs[:, ::-1]
    fuller = np.maximum(loads[expert] + loads[given], loads[expert] + loads[kept])
    fuller[(pairs == expert).any(axis=1)] = np.inf
    fuller[given == ALONE] = np.inf
    other, side = np.unravel_index(int(fuller.argmin()), fuller.shape)
    if fuller[other, side] == np.inf:
        return False
    pairs[gpu, 1], pairs[other, side] = pairs[other, side], expert
    return True


class Counting(NamedTuple):
    rows: Floats  # h, rising
    counts: Ints  # [experts]
    experts: Ints  # [6, experts]: places, tabu steps, costs of giving a copy and of taking one
    lines: Ints  # [3, rows + 1]


@jit_inner
def _climb(stair: Ints, copies: int, at: int) -> None:
    if at < 0:
        at, copies = -at, -copies
    stair[0] += copies
    stair[at] -= copies


@jit_inner
def _tried(state: Counting, expert: int, step: int) -> None:
    count, places = state.counts[expert], state.experts
    _climb(state.lines[STAIR], -count, places[NOW, expert])
    _climb(state.lines[STAIR], count + step, places[NOW + step, expert])


@jit_inner
def _settled(lines: Ints, keep: int) -> int:
    """The cost of the rows with the steps under trial, which are cleared; the changes are kept (1) or not (0)."""
    total, more = 0, 0
    for row in range(lines.shape[1] - 1):
        more += lines[STAIR, row]
        lines[STAIR, row] = 0
        now = lines[BROKEN, row] + more
        total += lines[PRICE, row] * max(0, now)
        if keep:
            lines[BROKEN, row] = now
    lines[STAIR, lines.shape[1] - 1] = 0
    return total


@jit_inner
def _evaluate(case: TwoSlotCase, state: Counting, expert: int, ceiling: float) -> None:
    """Recompute the places of an expert's copies."""
    least = min_count(case.weights[expert], ceiling)
    for step in range(3):
        after = state.counts[expert] + step - 1
        fits = after >= least
        at = place(state.rows, case.weights[expert] / after, ceiling) if fits else NOWHERE
        state.experts[step, expert] = at


@jit_inner
def _alone(state: Counting, max_copies: int) -> None:
    """The cost of each expert's giving and taking one copy alone."""
    counts, experts = state.counts, state.experts
    for expert in range(len(counts)):
        for side in range(2):
            allowed = counts[expert] < max_copies if side else experts[FEWER, expert] != NOWHERE
            experts[GIVES + side, expert] = NEVER
            if allowed and experts[REST, expert] <= 0:
                _tried(state, expert, 2 * side - 1)
                experts[GIVES + side, expert] = _settled(state.lines, 0)


@jit_inner
def _cheapest(costs: Ints, chosen: Ints) -> None:
    """Fill `chosen` with the cheapest experts; -1 where no more are allowed."""
    for at in range(len(chosen)):
        chosen[at] = -1
    for expert in range(len(costs)):
        at = len(chosen)
        while at > 0 and (chosen[at - 1] < 0 or costs[chosen[at - 1]] > costs[expert]):
            at -= 1
        if at < len(chosen) and costs[expert] < NEVER:
            for later in range(len(chosen) - 1, at, -1):
                chosen[later] = chosen[later - 1]
            chosen[at] = expert


@jit_inner
def _together(state: Counting) -> tuple[int, int, int]:
    """The best exchange among those that are good alone."""
    chosen = np.empty(GIVERS + TAKERS, np.int64)
    _cheapest(state.experts[GIVES], chosen[:GIVERS])
    _cheapest(state.experts[TAKES], chosen[GIVERS:])
    best, from_expert, to_expert = NEVER, -1, -1
    for giver in chosen[:GIVERS]:
        for taker in chosen[GIVERS:]:
            if giver == taker or giver < 0 or taker < 0:
                continue
            _tried(state, giver, -1)
            _tried(state, taker, 1)
            cost = _settled(state.lines, 0)
            if cost < best:
                best, from_expert, to_expert = cost, giver, taker
    return from_expert, to_expert, best


@jit_inner
def _chosen(state: Counting, over: int) -> tuple[int, int, int]:
    """The experts that give and take a copy, -1 for none; both -1: no move is left.  And the cost of the exchange."""
    if over == 0:
        return _together(state)
    costs = state.experts[GIVES if over > 0 else TAKES]
    expert = 0
    for other in range(len(costs)):
        if costs[other] < costs[expert]:
            expert = other
    if costs[expert] == NEVER:
        return -1, -1, 0
    return (expert, -1, 0) if over > 0 else (-1, expert, 0)


@jit_inner
def _initial(case: TwoSlotCase, ceiling: float, counts: Ints) -> Counting:
    """Initial counts: every expert has at least as many copies as the ceiling requires."""
    rows = thresholds(case, ceiling)
    state = Counting(rows, counts, np.zeros((6, len(counts)), np.int64), np.zeros((3, len(rows) + 1), np.int64))
    for row in range(len(rows)):
        state.lines[BROKEN, row], state.lines[PRICE, row] = -case.singles, 1
    for expert in range(len(counts)):
        counts[expert] = max(counts[expert], min_count(case.weights[expert], ceiling))
        _evaluate(case, state, expert, ceiling)
        _climb(state.lines[STAIR], counts[expert], state.experts[NOW, expert])
    return state


@jit_entry(boolean(TWOS, float64, int64[::1], int64))
def counts_under(case: TwoSlotCase, ceiling: float, counts: Ints, steps: int) -> bool:
    """Change the counts until they satisfy every row; returns whether they do."""
    state = _initial(case, ceiling, counts)
    over = -case.slots
    for expert in range(len(counts)):
        over += counts[expert]
        if counts[expert] > case.max_copies:
            return False
    for _ in range(steps):
        now = _settled(state.lines, 1)
        if over == 0 and now == 0:
            return True
        _alone(state, case.max_copies)
        giver, taker, best = _chosen(state, over)
        stuck, resting = giver < 0 and taker < 0, False
        for expert in range(len(counts)):
            resting = resting or state.experts[REST, expert] > 0
            state.experts[REST, expert] = 0 if stuck else state.experts[REST, expert] - 1
        if stuck and not resting:
            return False
        for row in range(len(state.rows) if best >= now else 0):
            state.lines[PRICE, row] += state.lines[BROKEN, row] > 0
        for side in range(2):
            expert = taker if side else giver
            if expert >= 0:
                _tried(state, expert, 2 * side - 1)
                counts[expert] += 2 * side - 1
                over += 2 * side - 1
                _evaluate(case, state, expert, ceiling)
                state.experts[REST, expert] = REST_STEPS
    return False
