"""Replica counts under a ceiling, where no GPU has more than two slots: a local search on the rows of pairing.

Any counts c with sum c = slots break row h (see `placement.bounds.rows`) by

    v_h = copies that weigh >= h  -  copies that weigh <= T - h  -  GPUs of one slot,

and can be paired under T when no v_h is above 0.  The search minimises sum_h pi_h max(0, v_h) by moving one copy at a
time from one expert to another; where no move helps, the prices pi of the broken rows rise (breakout, Morris 1993)
and a least bad move is made, with the experts it touched left alone for a few steps.
"""

from typing import NamedTuple

import numpy as np

from fleet.compiled import part
from placement.arrays import Floats, Ints
from placement.bounds.rows import Twos, least_count, place, thresholds

GIVERS, TAKERS = 6, 10  # how many of the best givers and takers of a copy are tried with each other
REST = 3  # steps
NOWHERE = 2**60  # the place of copies that would weigh more than the ceiling


class Counting(NamedTuple):
    """Where the search stands."""

    weights: Floats  # [experts]
    counts: Ints  # [experts]
    places: Ints  # [experts, 3]: of copies among the rows, with one fewer, as now, with one more
    resting: Ints  # [experts]: steps
    rows: Floats  # h, rising
    broken: Floats  # [rows]: v
    prices: Floats  # [rows]: pi
    trial: Floats  # [rows]: v after a move
    costs: Floats  # [2, experts]: after giving a copy, after taking one


@part
def _shift(broken: Floats, copies: int, at: int) -> None:
    """More copies (or fewer, below 0) at a place among the rows."""
    if at > 0:
        for row in range(at):
            broken[row] += copies
    else:
        for row in range(-at):
            broken[row] -= copies


@part
def _cost(broken: Floats, prices: Floats) -> float:
    total = 0.0
    for row in range(len(broken)):
        if broken[row] > 0:
            total += prices[row] * broken[row]
    return total


@part
def _look(state: Counting, expert: int, ceiling: float) -> None:
    """Find the places of an expert's copies anew."""
    least = least_count(state.weights[expert], ceiling)
    for step in range(3):
        after = state.counts[expert] + step - 1
        fits = after >= least
        state.places[expert, step] = place(state.rows, state.weights[expert] / after, ceiling) if fits else NOWHERE


@part
def _change(broken: Floats, count: int, places: Ints, step: int) -> None:
    """What one copy more (step 1) or fewer (-1) of an expert does to the rows."""
    _shift(broken, -count, places[1])
    _shift(broken, count + step, places[1 + step])


@part
def _alone(state: Counting, most: int) -> None:
    """What each expert's giving or taking one copy would cost by itself."""
    counts, places, resting, costs = state.counts, state.places, state.resting, state.costs
    broken, prices, trial = state.broken, state.prices, state.trial
    for expert in range(len(counts)):
        for side in range(2):
            allowed = counts[expert] < most if side else places[expert, 0] != NOWHERE
            costs[side, expert] = np.inf
            if allowed and resting[expert] <= 0:
                trial[:] = broken
                _change(trial, counts[expert], places[expert], 2 * side - 1)
                costs[side, expert] = _cost(trial, prices)


@part
def _cheapest(costs: Floats, chosen: Ints) -> None:
    """Fill `chosen` with the experts of least cost, cheapest first; -1 where no more are allowed."""
    chosen[:] = -1
    last = len(chosen) - 1
    for expert in range(len(costs)):
        at = last
        if costs[expert] == np.inf or (chosen[at] >= 0 and costs[chosen[at]] <= costs[expert]):
            continue
        while at > 0 and (chosen[at - 1] < 0 or costs[chosen[at - 1]] > costs[expert]):
            chosen[at] = chosen[at - 1]
            at -= 1
        chosen[at] = expert


@part
def _together(state: Counting) -> tuple[int, int, float]:
    """The best of the exchanges among those that are good by themselves."""
    counts, places, costs = state.counts, state.places, state.costs
    broken, prices, trial = state.broken, state.prices, state.trial
    givers, takers = np.empty(GIVERS, np.int64), np.empty(TAKERS, np.int64)
    _cheapest(costs[0], givers)
    _cheapest(costs[1], takers)
    best, from_expert, to_expert = np.inf, -1, -1
    for giver in givers:
        for taker in takers:
            if giver == taker or giver < 0 or taker < 0:
                continue
            trial[:] = broken
            _change(trial, counts[giver], places[giver], -1)
            _change(trial, counts[taker], places[taker], 1)
            cost = _cost(trial, prices)
            if cost < best:
                best, from_expert, to_expert = cost, int(giver), int(taker)
    return from_expert, to_expert, best


@part
def _chosen(state: Counting, over: int, now: float) -> tuple[int, int, float]:
    """Who gives a copy and who takes one, -1 for nobody; both -1: no move is left.  And the cost afterwards."""
    if over == 0:
        return _together(state)
    side = 0 if over > 0 else 1
    expert = int(np.argmin(state.costs[side]))
    if state.costs[side, expert] == np.inf:
        return -1, -1, now
    return (expert, -1, 0.0) if over > 0 else (-1, expert, 0.0)


@part
def _begun(twos: Twos, ceiling: float, counts: Ints) -> Counting:
    """Every expert has at least as many copies as the ceiling asks."""
    experts, rows = len(counts), thresholds(twos, ceiling)
    state = Counting(
        twos.weights,
        counts,
        np.empty((experts, 3), np.int64),
        np.zeros(experts, np.int64),
        rows,
        np.full(len(rows), -float(twos.singles)),
        np.ones(len(rows)),
        np.empty(len(rows)),
        np.empty((2, experts)),
    )
    for expert in range(experts):
        counts[expert] = max(counts[expert], least_count(twos.weights[expert], ceiling))
        _look(state, expert, ceiling)
        _shift(state.broken, counts[expert], state.places[expert, 1])
    return state


@part
def counts_under(twos: Twos, ceiling: float, counts: Ints, steps: int) -> bool:
    """Change the counts until they keep every row; whether they do."""
    state = _begun(twos, ceiling, counts)
    if counts.max() > twos.most:
        return False
    for _ in range(steps):
        over, now = counts.sum() - twos.slots, _cost(state.broken, state.prices)
        if over == 0 and now == 0:
            return True
        _alone(state, twos.most)
        giver, taker, best = _chosen(state, over, now)
        if giver < 0 and taker < 0:
            if state.resting.max() <= 0:
                return False
            state.resting[:] = 0
            continue
        if best >= now:
            for row in range(len(state.rows)):
                state.prices[row] += state.broken[row] > 0
        state.resting[:] -= 1
        for side in range(2):
            expert = taker if side else giver
            if expert >= 0:
                _change(state.broken, counts[expert], state.places[expert], 2 * side - 1)
                counts[expert] += 2 * side - 1
                _look(state, expert, ceiling)
                state.resting[expert] = REST
    return False
