"""Swaps that relieve the most loaded GPU.

The most loaded GPU h gives a copy a to some GPU l and takes a copy b for it.  With x = load(a) - load(b),

    fill(h) = (carried(h) - x) / share(h),    fill(l) = (carried(l) + x) / share(l)

and the best x makes both equal.  Copies are sorted by falling load on each GPU, so one walk over both lists finds the
best b for every a.  The least loaded GPU is tried first.  A swap that removes a third of h's excess, or meets the
target, is taken at once: a better one is seldom worth its search.
"""

from fleet.numba_cache import jit_inner
from placement.balance.state import CLEARLY, Layer, fullest, put

ENOUGH = 0.65  # of the excess may remain for a swap to be taken at once


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
