"""The copies of a layer's experts on nodes and the share of each; then, by `packing`, their slots.

Under `nearest` (`placement.dispatch`) a copy of an expert with c copies on several nodes, c(n) of them on this one,
receives of the expert's tokens

    1 / GPUs + far / c,  and the lowest-numbered one on the node (GPUs of n - c(n)) / GPUs more

with `far` the part of the GPUs without a copy on their node.
"""

import numpy as np

from placement.arrays import Floats, Ints
from placement.dispatch import Dispatch
from placement.layout import Layout
from placement.traffic.initial_partition import EVERYWHERE, SPREAD, Start
from placement.traffic.problem import Nodes

ELSEWHERE_TOO = 1e-6  # one more copy of an expert on several nodes changes others' shares: the last choice


def copies_of(home: Ints, start: Start) -> Ints:
    """[experts, nodes]: copies."""
    copies = np.where((home == SPREAD)[:, np.newaxis], start.copies, 0)
    copies[home == EVERYWHERE] = 1
    settled = np.flatnonzero(home >= 0)
    copies[settled, home[settled]] = start.least[settled]
    return copies


def packed(copies: Ints, loads: Floats, *, layout: Layout, rule: Dispatch) -> Ints | None:
    """[slots]: experts of one layer, from copies per node [experts, nodes], filled up; None if impossible."""
    from placement.traffic.packing import pack  # noqa: PLC0415 - compiles on import

    nodes, copies = Nodes.of(layout), copies.copy()
    fill = _filled_apart if rule is Dispatch.NEAREST and layout.nodes > 1 else _filled
    if not all(fill(copies, loads, node, nodes) for node in range(layout.nodes)):
        return None
    each, lowest = taken(copies, nodes, rule=rule)
    each, lowest = (loads[:, np.newaxis] * parts for parts in (each, lowest))
    weight = np.where(copies > 0, each + lowest / np.maximum(copies, 1), -1.0)
    row = pack(
        np.ascontiguousarray(copies.T),
        np.ascontiguousarray(each.T),
        np.ascontiguousarray(lowest.T),
        np.argsort(-weight.T, axis=1, kind="stable"),
        np.concatenate([[0], np.cumsum(nodes.gpus)]),
        layout.first_slot,
        layout.speeds,
    )
    return row if len(row) else None


def _filled_apart(copies: Ints, loads: Floats, node: int, nodes: Nodes) -> bool:
    """Fill the node with experts that it lacks: the hottest with several copies, else the least loaded."""
    for _ in range(int(nodes.slots[node] - copies[:, node].sum())):
        total, away = copies.sum(axis=1), copies[:, node] == 0
        several = away & (total > 1)
        if several.any():
            expert = int(np.where(several, loads / total, -1.0).argmax())
        elif away.any():
            expert = int(np.where(away, loads, np.inf).argmin())
        else:
            return _filled(copies, loads, node, nodes)
        copies[expert, node] = 1
    return int(copies[:, node].sum()) == int(nodes.slots[node])


def _filled(copies: Ints, loads: Floats, node: int, nodes: Nodes) -> bool:
    """Fill the node with copies of its most loaded experts; False where impossible."""
    for _ in range(int(nodes.slots[node] - copies[:, node].sum())):
        here, all_copies = copies[:, node], copies.sum(axis=1)
        each = loads / all_copies
        fits = (here > 0) & (here < nodes.gpus[node])
        if not fits.any():  # every expert here is on every GPU: one from elsewhere
            fits = here == 0
        if not fits.any():
            return False
        own = np.where(here == all_copies, 1.0, ELSEWHERE_TOO)
        copies[int(np.where(fits, each * own, -1.0).argmax()), node] += 1
    return int(copies[:, node].sum()) == int(nodes.slots[node])


def taken(copies: Ints, nodes: Nodes, *, rule: Dispatch) -> tuple[Floats, Floats]:
    """[experts, nodes]: the share of a copy, and the additional share of the node's lowest copy."""
    total = copies.sum(axis=1, keepdims=True)
    gpus = int(nodes.gpus.sum())
    several = (copies.max(axis=1, keepdims=True) < total) & (rule is Dispatch.NEAREST)
    far = 1.0 - ((copies > 0) * nodes.sources).sum(axis=1, keepdims=True)
    each = np.where(several, 1.0 / gpus + far / total, 1.0 / total)
    lowest = np.where(several & (copies > 0), (nodes.gpus - copies) / gpus, 0.0)
    return np.broadcast_to(each, copies.shape), lowest
