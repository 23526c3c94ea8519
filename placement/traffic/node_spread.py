"""Moves copies of an expert to different nodes, where it has no more copies than there are nodes: for rule `nearest`.

SGLang prefers a copy on the own node unless all copies lie on that one (`placement.dispatch`).  With copies on
different nodes this exception does not matter: the plan is valid with and without it.
"""

import numpy as np
import numpy.typing as npt

from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout


def together(rows: Ints, *, experts: int, layout: Layout) -> npt.NDArray[np.bool_]:
    """[rows, experts]: experts with two copies on a node although their copies are no more than the nodes."""
    at = np.arange(len(rows))[:, np.newaxis] * experts
    places = (rows + at) * layout.nodes + layout.node_of_slot
    copies = np.bincount(places.ravel(), minlength=len(rows) * experts * layout.nodes)
    copies = copies.reshape(len(rows), experts, layout.nodes)
    found: npt.NDArray[np.bool_] = (copies.max(axis=2) > 1) & (copies.sum(axis=2) <= layout.nodes)
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
