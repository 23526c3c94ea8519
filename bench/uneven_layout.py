"""Uneven slots at the same total: some GPUs give a slot to others, so that the hottest copies lie alone.

With two slots on each GPU even the hottest copy needs company.  A GPU of one slot gives it room, and cold experts lie
three to a GPU instead.  How many GPUs give one is searched for the whole model, as a layout is one for all layers.
"""

from collections.abc import Callable

import numpy as np

from fleet.documents import RuleError
from placement.arrays import Floats, Ints
from placement.balance import balanced
from placement.imbalance import imbalance
from placement.layout import Layout

HALVINGS = 8  # of the first look, from half of the GPUs giving a slot down


def uneven_layout(tokens: Floats, *, layout: Layout) -> Layout:
    """The same slots in all, dealt out so that loads [layers, experts] can lie evenest; the given layout where none is.

    For GPUs alike with equally many slots.  Each GPU that takes one needs `layers x expert_bytes` more memory.
    """
    alike = float(layout.speeds.min()) == float(layout.speeds.max())
    RuleError.raise_for(() if alike and layout.is_even else [(("layout",), "must be even, with GPUs of one speed")])
    movable = 1 < int(layout.slots_of_gpu[0]) < tokens.shape[1]

    def reached(givers: int) -> float:
        dealt = with_givers(layout, givers)
        return imbalance(balanced(tokens, layout=dealt), tokens, layout=dealt).mean

    return with_givers(layout, _least(reached, layout.gpus // 2 if movable else 0))


def with_givers(layout: Layout, givers: int) -> Layout:
    """As many GPUs with one slot fewer and with one more, spread over the nodes; the first of a node give."""
    within = np.arange(layout.gpus) - np.searchsorted(layout.node_of_gpu, layout.node_of_gpu)
    order = np.lexsort((layout.node_of_gpu, within))  # the first of each node, then the second ones
    slots: Ints = layout.slots_of_gpu.copy()
    slots[order[:givers]] -= 1
    slots[order[layout.gpus - givers :]] += 1
    return Layout.of(
        node_of_gpu=layout.node_of_gpu.tolist(), slots_of_gpu=slots.tolist(), speeds=layout.speeds.tolist()
    )


def _least(cost: Callable[[int], float], most: int) -> int:
    """Where a cost from 0 to `most` is least: halvings first, then ever smaller steps about the best."""
    tried = {at: cost(at) for at in sorted({0, *(most >> halvings for halvings in range(HALVINGS))})}
    step = max(1, _best(tried) // 2)
    while step:
        best = _best(tried)
        for at in (best - step, best + step):
            if 0 <= at <= most and at not in tried:
                tried[at] = cost(at)
        if _best(tried) == best:
            step //= 2
    return _best(tried)


def _best(tried: dict[int, float]) -> int:
    return min(tried, key=lambda at: (tried[at], at))
