"""Placements with an expert twice on one GPU: EPLB makes them, engines load them, and the second copy is wasted.

Each such slot takes the expert that makes the layer's loads most even, by the sum of the GPUs' squared times.
"""

from collections.abc import Iterator

import numpy as np

from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch, gpu_loads
from placement.layout import Layout
from placement.validation import check_slots


def without_duplicates(current: Ints, tokens: Floats, *, layout: Layout, rule: Dispatch) -> Ints:
    """A legal placement, with one new copy for each slot that repeats another of its GPU."""
    legal = current
    for layer, slot in _duplicates(current, layout):
        legal = current.copy() if legal is current else legal
        gpu = layout.gpu_of_slot[slot]
        here = legal[layer, layout.first_slot[gpu] : layout.first_slot[gpu + 1]]
        others = np.setdiff1d(np.arange(tokens.shape[1]), here)
        trials = np.repeat(legal[layer : layer + 1], len(others), axis=0)
        trials[:, slot] = others
        times = gpu_loads(trials, np.repeat(tokens[layer : layer + 1], len(others), axis=0), layout=layout, rule=rule)
        legal[layer, slot] = others[int(((times / layout.shares) ** 2).sum(axis=1).argmin())]
    check_slots(legal, experts=tokens.shape[1], layout=layout)
    return legal


def _duplicates(current: Ints, layout: Layout) -> Iterator[tuple[int, int]]:
    """Layer and slot of every copy whose GPU holds the expert in an earlier slot."""
    if current.ndim != 2 or current.shape[1] != layout.slots:
        return  # `check_slots` reports the field
    places = current + layout.gpu_of_slot * (int(current.max()) + 1)
    order = np.argsort(places, axis=1, kind="stable")
    ordered = np.take_along_axis(places, order, axis=1)
    for layer, at in np.argwhere(ordered[:, 1:] == ordered[:, :-1]).tolist():
        yield layer, int(order[layer, at + 1])
