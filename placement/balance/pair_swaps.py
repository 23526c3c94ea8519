"""Swaps of two copies for two, for layers without a useful single swap.

With few copies per GPU there are few single swaps; pairs give many more.  For two copies of the most loaded GPU, one
walk over another GPU's list from both ends finds the best two.
"""

from fleet.numba_cache import jit_inner
from placement.arrays import Ints
from placement.balance.state import Layer, place_of
from placement.balance.swaps import swap


@jit_inner
def best_double(layer: Layer, full: int, other: int, fill: float, places: Ints) -> float:
    """The lowest fill that a pair swap of the two GPUs reaches, if below `fill`; `places` gets two and two places."""
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
                        places[0], places[1], places[2], places[3] = one, two, high, low
                if moved < best:
                    high += 1
                else:
                    low -= 1
    return fill


@jit_inner
def swap_two(layer: Layer, full: int, other: int, places: Ints) -> None:
    one, two = layer.expert_at[places[0]], layer.expert_at[places[1]]
    three, four = layer.expert_at[places[2]], layer.expert_at[places[3]]
    swap(layer, full, place_of(layer, full, one), other, place_of(layer, other, three))
    swap(layer, full, place_of(layer, full, two), other, place_of(layer, other, four))
