"""Local search from a start: swaps, then replica moves and pair swaps, until none lowers the maximum load."""

from typing import NamedTuple

from fleet.numba_cache import jit_inner
from placement.arrays import Ints
from placement.balance.pair_swaps import best_double, swap_two
from placement.balance.replica_moves import Holders, best_exchange, exchange
from placement.balance.state import CLEARLY, Layer, fullest
from placement.balance.swaps import swap_down

MAX_WORK = 10**8  # examined copies; only thousands of GPUs reach this limit
MAX_FOR_DOUBLES = 32  # copies per GPU; the work grows with their cube, and with more copies the swaps suffice


class Tools(NamedTuple):
    holders: Holders
    places: Ints  # [4]


@jit_inner
def descend(layer: Layer, tools: Tools, target: float) -> None:
    """Search until the most loaded GPU meets `target`, nothing helps or the work limit is reached."""
    slots, work = len(layer.expert_at), MAX_WORK
    while work > 0:
        work -= (1 + swap_down(layer, target, work // slots)) * slots
        full, _empty, fill = fullest(layer)
        if fill <= target:
            return
        copies = layer.first[full + 1] - layer.first[full]
        work -= slots * copies * copies
        _fill, gpu, place, expert = best_exchange(layer, tools.holders, full, fill * CLEARLY)
        if gpu >= 0:
            exchange(layer, gpu, place, expert)
        elif not _doubly_swapped(layer, full, fill * CLEARLY, tools.places):
            return


@jit_inner
def _doubly_swapped(layer: Layer, full: int, fill: float, places: Ints) -> bool:
    partner = -1
    if layer.first[full + 1] - layer.first[full] > MAX_FOR_DOUBLES:
        return False
    for other in range(len(layer.shares)):
        if other != full:
            better = best_double(layer, full, other, fill, places)
            if better < fill:
                fill, partner = better, other
    if partner >= 0:
        swap_two(layer, full, partner, places)
    return partner >= 0
