"""Local search for small layers: any two slots swap, or a spare copy's slot goes to another expert.

Annealing uses the loads of nodes, not of GPUs.  On many slots the packing evens GPUs out, on few it does not.  Few
slots allow few changes, so all of them are evaluated by their real imbalance and traffic, and the best is made while it
helps.
"""

from dataclasses import dataclass

import numpy as np

from placement.arrays import Experts, Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.token_trace import TokenTrace
from placement.traffic.expected import traffic_cost
from placement.traffic.node_spread import together

MAX_WORK = 2**17  # changes x experts of tokens: above it a layer is not small
ROUNDS = 64  # changes made, a safeguard
MIN_GAIN = 1e-9


@dataclass(frozen=True, eq=False)
class Target:
    layout: Layout
    rule: Dispatch
    cost: Floats | None  # [nodes, nodes]
    ceiling: float


def is_small(trace: Experts, *, experts: int, layout: Layout) -> bool:
    """Whether the layer of these experts [tokens, k] is small enough for the search."""
    return layout.slots * (layout.slots + experts) * trace.size <= MAX_WORK


def improve(row: Ints, tokens: Floats, trace: Experts, target: Target) -> Ints:
    """[slots]: under the ceiling if changes reach it, then with less traffic; from loads [experts]."""
    best = _evaluated(row[np.newaxis], tokens, trace, target)[0]
    for _ in range(ROUNDS):
        changed = _changed(row, experts=len(tokens), layout=target.layout)
        if target.rule is Dispatch.NEAREST:
            changed = changed[~together(changed, experts=len(tokens), layout=target.layout).any(axis=1)]
        if not len(changed):
            return row
        evaluated = _evaluated(changed, tokens, trace, target)
        at = int(np.lexsort(evaluated.T[::-1])[0])
        if tuple(evaluated[at]) >= tuple(best):
            return row
        row, best = changed[at], evaluated[at]
    return row


def _evaluated(rows: Ints, tokens: Floats, trace: Experts, target: Target) -> Floats:
    """[rows, 2]: the excess over the ceiling, then the traffic of the nearest, in units of the minimum gain."""
    found = np.full((len(rows), 2), np.inf)
    uneven = imbalance(rows, np.tile(tokens, (len(rows), 1)), layout=target.layout, rule=target.rule).per_layer
    found[:, 0] = np.rint(np.maximum(0.0, uneven - target.ceiling) / MIN_GAIN)
    nearest = found[:, 0] == found[:, 0].min()
    tiled = TokenTrace(np.repeat(trace[:, np.newaxis], int(nearest.sum()), axis=1), len(tokens))
    costs = traffic_cost(rows[nearest], tiled, layout=target.layout, rule=target.rule, cost=target.cost)
    found[nearest, 1] = np.rint(costs / MIN_GAIN)
    return found


def _changed(row: Ints, *, experts: int, layout: Layout) -> Ints:
    """[changes, slots]: every placement one change away."""
    one, other = np.triu_indices(len(row), k=1)
    swapped = np.tile(row, (len(one), 1))
    at = np.arange(len(one))
    swapped[at, one], swapped[at, other] = row[other], row[one]
    spare = np.flatnonzero(np.bincount(row, minlength=experts)[row] > 1)
    given = np.tile(row, (len(spare) * experts, 1))
    given[np.arange(len(given)), np.repeat(spare, experts)] = np.tile(np.arange(experts), len(spare))
    rows = np.concatenate([swapped, given])
    places = np.sort(rows * layout.gpus + layout.gpu_of_slot, axis=1)
    twins = (places[:, 1:] == places[:, :-1]).any(axis=1)
    found: Ints = rows[~twins & (rows != row).any(axis=1)]
    return found
