"""Changes of replica counts that relieve the most loaded GPU, for layers without a useful swap.

A place that holds one of several copies of expert b gets one more copy of expert a.  All copies of a become lighter,
all copies of b heavier:  tokens(a) / (copies(a) + 1)  and  tokens(b) / (copies(b) - 1)  each.  The most loaded GPU
gains when it holds a, or when the place is its own and a's copy is the lighter one.
"""

from typing import NamedTuple

from fleet.numba_cache import jit_inner
from placement.arrays import Floats, Ints
from placement.balance.state import Layer, fill_of, move_to_order, place_of, put


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
