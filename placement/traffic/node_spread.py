"""No two copies of an expert on one node, where its copies are no more than the nodes: for the rule `nearest`.

SGLang prefers a copy on the own node unless all copies lie on that one (`placement.dispatch`).  Where copies lie
on different nodes it does not matter whether an engine makes that exception: the plan holds with it and without.
"""

import numpy as np
import numpy.typing as npt

from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.imbalance import imbalance
from placement.layout import Layout


def together(rows: Ints, *, experts: int, layout: Layout) -> npt.NDArray[np.bool_]:
    """[rows, experts]: which have two copies on a node though their copies are no more than the nodes."""
    at = np.arange(len(rows))[:, np.newaxis] * experts
    places = (rows + at) * layout.nodes + layout.node_of_slot
    copies = np.bincount(places.ravel(), minlength=len(rows) * experts * layout.nodes)
    copies = copies.reshape(len(rows), experts, layout.nodes)
    found: npt.NDArray[np.bool_] = (copies.max(axis=2) > 1) & (copies.sum(axis=2) <= layout.nodes)
    return found


def spread_over_nodes(row: Ints, tokens: Floats, *, layout: Layout) -> Ints:
    """[slots]: the row with such copies exchanged for those of other nodes, as evenly as single exchanges can.

    Where none can be made, a copy gives its slot to an expert that its node lacks; where there is none, it stays.
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
    """[changes, slots]: one copy taken off a node that has two."""
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
