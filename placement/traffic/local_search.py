"""Small changes of finished layers, each evaluated by its real imbalance and traffic.

`improve`, for small layers: any two slots swap, or a spare copy's slot goes to another expert.  Annealing uses loads of
nodes, not of GPUs.  On many slots the packing evens GPUs out, on few it does not.  Few slots allow few changes, so all
of them are evaluated, and the best is made while it helps.

`spread_over_nodes`, for rule `nearest`: copies of an expert that has no more copies than there are nodes move to
different nodes.  SGLang prefers a copy on the own node unless all copies lie on that one (`placement.dispatch`).  With
copies on different nodes this exception does not matter: the plan is valid with and without it.
"""

from dataclasses import dataclass

import numpy as np

from placement.arrays import Experts, Flags, Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout
from placement.token_trace import TokenTrace
from placement.traffic.expected import copies_on_nodes, traffic_cost

MAX_WORK = 2**17  # changes x experts of tokens: above it a layer is not small
ROUNDS = 64  # changes made, a safeguard
MIN_GAIN = 1e-9


@dataclass(frozen=True, eq=False)
class Target:
    layout: Layout
    rule: Dispatch
    given_cost: Floats | None  # [nodes, nodes]
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
    costs = traffic_cost(rows[nearest], tiled, layout=target.layout, rule=target.rule, cost=target.given_cost)
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


def together(rows: Ints, *, experts: int, layout: Layout) -> Flags:
    """[rows, experts]: experts with two copies on a node although their copies are no more than the nodes."""
    copies = copies_on_nodes(rows, experts=experts, layout=layout)
    found: Flags = (copies.max(axis=2) > 1) & (copies.sum(axis=2) <= layout.nodes)
    return found


def spread_over_nodes(row: Ints, tokens: Floats, *, layout: Layout) -> Ints:
    """[slots]: the row with such copies swapped to other nodes, as evenly as single swaps allow.

    Where no swap is legal, a copy gives its slot to an expert that its node lacks; else it stays.
    """
    row = row.copy()
    for expert in np.flatnonzero(together(row[np.newaxis], experts=len(tokens), layout=layout)[0]):
        while together(row[np.newaxis], experts=len(tokens), layout=layout)[0, expert]:
            changed = _exchanged(row, int(expert), experts=len(tokens), layout=layout)
            if not len(changed):
                break
            tiled = np.tile(tokens, (len(changed), 1))
            row = changed[int(imbalance(changed, tiled, layout=layout, rule=Dispatch.NEAREST).per_layer.argmin())]
    return row


def _exchanged(row: Ints, expert: int, *, experts: int, layout: Layout) -> Ints:
    """[changes, slots]: one copy moved off a node that has two."""
    node_of = layout.node_of_slot
    holds = np.zeros((experts, layout.nodes), dtype=np.bool_)
    holds[row, node_of] = True
    mine = np.flatnonzero(row == expert)
    node = int(np.bincount(node_of[mine]).argmax())
    slot = int(mine[node_of[mine] == node][-1])
    there = np.flatnonzero(np.logical_not(holds[expert, node_of]) & np.logical_not(holds[row, node]))
    if len(there):
        changed = np.tile(row, (len(there), 1))
        changed[np.arange(len(there)), there], changed[:, slot] = expert, row[there]
        return changed
    lacking = np.flatnonzero(np.logical_not(holds[:, node]))
    changed = np.tile(row, (len(lacking), 1))
    changed[:, slot] = lacking
    return changed
