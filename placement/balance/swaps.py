"""Changes that relieve the most loaded GPU: swaps, swaps of two copies for two, and replica moves.

The most loaded GPU h gives a copy a to some GPU l and takes a copy b for it.  With x = load(a) - load(b),

    fill(h) = (carried(h) - x) / share(h),    fill(l) = (carried(l) + x) / share(l)

and the best x makes both equal.  Copies are sorted by falling load on each GPU, so one walk over both lists finds the
best b for every a.  The least loaded GPU is tried first.  A swap that removes a third of h's excess, or meets the
target, is taken at once: a better one is seldom worth its search.  With few copies per GPU pairs give many more swaps.

A replica move, for layers without a useful swap: a place that holds one of several copies of b gets one more copy of a.
All copies of a become lighter, all copies of b heavier: tokens(a) / (copies(a) + 1) and tokens(b) / (copies(b) - 1)
each.  h gains when it holds a, or when the place is its own and a's copy is the lighter one.
"""

from typing import NamedTuple

from fleet.numba_cache import jit_inner
from placement.arrays import Floats, Ints
from placement.balance.state import CLEARLY, Layer, fill_of, fullest, move_to_order, place_of, put

ENOUGH = 0.65  # of the excess may remain for a swap to be taken at once


class Holders(NamedTuple):
    """The fill of an expert's holders with one copy less of it: [experts] each."""

    fullest: Ints  # the GPU with the greatest fill
    fill: Floats  # its fill
    next_fill: Floats  # the second greatest fill


@jit_inner
def best_exchange(layer: Layer, holders: Holders, full: int, fill: float) -> tuple[float, int, int, int]:
    """The move with the lowest maximum fill, if below `fill`: that fill, GPU, place and new expert, or -1."""
    _note_holders(layer, holders)
    best = _lighter_there(layer, holders, full, fill)
    gpu, place, expert = -1, -1, -1
    if best[1] >= 0:
        fill, gpu, place, expert = best[0], full, best[1], best[2]
    for at in range(layer.first[full], layer.first[full + 1]):
        extra = layer.expert_at[at]
        one_more = layer.tokens[extra] / (layer.counts[extra] + 1)
        left = (layer.carried[full] - layer.load_at[at] + one_more) / layer.shares[full]
        if left >= fill:
            continue
        for other in range(len(layer.shares)):
            if layer.holds[other, extra]:
                continue
            for candidate in range(layer.first[other], layer.first[other + 1]):
                gone = layer.expert_at[candidate]
                if layer.counts[gone] == 1:
                    continue
                there = fill_of(layer, other) + (one_more - layer.load_at[candidate]) / layer.shares[other]
                worst = max(left, there, _others(holders, gone, other))
                if worst < fill:
                    fill, gpu, place, expert = worst, other, candidate, extra
    return fill, gpu, place, expert


@jit_inner
def exchange(layer: Layer, gpu: int, place: int, expert: int) -> None:
    """Replace the copy at `place` by one more of `expert`."""
    gone = layer.expert_at[place]
    layer.counts[gone] -= 1
    layer.counts[expert] += 1
    layer.each[gone] = layer.tokens[gone] / layer.counts[gone]
    layer.each[expert] = layer.tokens[expert] / layer.counts[expert]
    put(layer, gpu, place, expert)
    for other in range(len(layer.shares)):
        if layer.holds[other, gone]:
            _reload(layer, other, gone)
        if layer.holds[other, expert]:
            _reload(layer, other, expert)


@jit_inner
def _lighter_there(layer: Layer, holders: Holders, full: int, fill: float) -> tuple[float, int, int]:
    """The best place of the most loaded GPU for one more copy of an expert that it does not hold."""
    place, expert = -1, -1
    for at in range(layer.first[full], layer.first[full + 1]):
        gone = layer.expert_at[at]
        if layer.counts[gone] == 1 or _others(holders, gone, full) >= fill:
            continue
        for extra in range(len(layer.tokens)):
            if not layer.holds[full, extra]:
                one_more = layer.tokens[extra] / (layer.counts[extra] + 1)
                left = (layer.carried[full] - layer.load_at[at] + one_more) / layer.shares[full]
                worst = max(left, _others(holders, gone, full))
                if worst < fill:
                    fill, place, expert = worst, at, extra
    return fill, place, expert


@jit_inner
def _note_holders(layer: Layer, holders: Holders) -> None:
    for expert in range(len(layer.tokens)):
        holders.fill[expert] = holders.next_fill[expert] = 0.0
    for gpu in range(len(layer.shares)):
        for place in range(layer.first[gpu], layer.first[gpu + 1]):
            expert = layer.expert_at[place]
            if layer.counts[expert] > 1:
                heavier = layer.each[expert] / (layer.counts[expert] - 1)
                fill = (layer.carried[gpu] + heavier) / layer.shares[gpu]
                if fill > holders.fill[expert]:
                    holders.next_fill[expert] = holders.fill[expert]
                    holders.fill[expert], holders.fullest[expert] = fill, gpu
                elif fill > holders.next_fill[expert]:
                    holders.next_fill[expert] = fill


@jit_inner
def _others(holders: Holders, expert: int, gpu: int) -> float:
    """The greatest fill of the expert's holders except `gpu`."""
    return float(holders.next_fill[expert] if holders.fullest[expert] == gpu else holders.fill[expert])


@jit_inner
def _reload(layer: Layer, gpu: int, expert: int) -> None:
    place = place_of(layer, gpu, expert)
    layer.carried[gpu] += layer.each[expert] - layer.load_at[place]
    layer.load_at[place] = layer.each[expert]
    move_to_order(layer, layer.first[gpu], place, layer.first[gpu + 1])


@jit_inner
def swap_down(layer: Layer, target: float, most: int) -> int:
    """Swap until the most loaded GPU meets `target`, no swap helps or `most` are done; returns the number of swaps."""
    turn = 0
    for done in range(most):
        full, empty, fill = fullest(layer)
        if fill <= target:
            return done
        enough = max(target, 1 + ENOUGH * (fill - 1))
        partner = empty
        fill, given, taken = best_swap(layer, full, empty, fill * CLEARLY)
        for _ in range(len(layer.shares)):
            if given >= 0 and fill <= enough:
                break
            turn = (turn + 1) % len(layer.shares)
            if turn != full:
                better, one, other = best_swap(layer, full, turn, fill)
                if one >= 0:
                    fill, given, taken, partner = better, one, other, turn
        if given < 0:
            return done
        swap(layer, full, given, partner, taken)
    return most


@jit_inner
def swap(layer: Layer, one: int, place: int, other: int, other_place: int) -> None:
    expert, other_expert = layer.expert_at[place], layer.expert_at[other_place]
    put(layer, one, place, other_expert)
    put(layer, other, other_place, expert)


@jit_inner
def best_swap(layer: Layer, full: int, other: int, fill: float) -> tuple[float, int, int]:
    """The swap with the lowest maximum fill of both GPUs, if below `fill`: the fill and both places, or -1 twice."""
    share, other_share = layer.shares[full], layer.shares[other]
    carried, other_carried = layer.carried[full], layer.carried[other]
    best = (carried * other_share - other_carried * share) / (share + other_share)
    given = taken = -1
    least, most = carried - fill * share, fill * other_share - other_carried
    if least >= most:
        return fill, given, taken
    first, end = layer.first[other], layer.first[other + 1]
    below = first
    for place in range(layer.first[full], layer.first[full + 1]):
        load = layer.load_at[place]
        while below < end and layer.load_at[below] > load - best:
            below += 1
        for candidate in range(max(first, below - 1), min(end, below + 1)):
            moved = load - layer.load_at[candidate]
            if (
                least < moved < most
                and not layer.holds[other, layer.expert_at[place]]
                and not layer.holds[full, layer.expert_at[candidate]]
            ):
                worst = max((carried - moved) / share, (other_carried + moved) / other_share)
                if worst < fill:
                    fill, given, taken = worst, place, candidate
                    least, most = carried - fill * share, fill * other_share - other_carried
    return fill, given, taken


@jit_inner
def best_double(layer: Layer, full: int, other: int, fill: float) -> tuple[float, tuple[int, int, int, int]]:
    """The lowest fill that a pair swap of the two GPUs reaches, if below `fill`, and two and two places."""
    places = (-1, -1, -1, -1)
    share, other_share = layer.shares[full], layer.shares[other]
    carried, other_carried = layer.carried[full], layer.carried[other]
    best = (carried * other_share - other_carried * share) / (share + other_share)
    least, most = carried - fill * share, fill * other_share - other_carried
    for one in range(layer.first[full], layer.first[full + 1]):
        if layer.holds[other, layer.expert_at[one]]:
            continue
        for two in range(one + 1, layer.first[full + 1]):
            if layer.holds[other, layer.expert_at[two]]:
                continue
            load = layer.load_at[one] + layer.load_at[two]
            high, low = layer.first[other], layer.first[other + 1] - 1
            while high < low and least < most:
                moved = load - layer.load_at[high] - layer.load_at[low]
                if (
                    least < moved < most
                    and not layer.holds[full, layer.expert_at[high]]
                    and not layer.holds[full, layer.expert_at[low]]
                ):
                    worst = max((carried - moved) / share, (other_carried + moved) / other_share)
                    if worst < fill:
                        fill = worst
                        least, most = carried - fill * share, fill * other_share - other_carried
                        places = (one, two, high, low)
                if moved < best:
                    high += 1
                else:
                    low -= 1
    return fill, places


@jit_inner
def swap_two(layer: Layer, full: int, other: int, places: tuple[int, int, int, int]) -> None:
    one, two = layer.expert_at[places[0]], layer.expert_at[places[1]]
    three, four = layer.expert_at[places[2]], layer.expert_at[places[3]]
    swap(layer, full, place_of(layer, full, one), other, place_of(layer, other, three))
    swap(layer, full, place_of(layer, full, two), other, place_of(layer, other, four))
