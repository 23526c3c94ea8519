"""The input of annealing: each expert's tokens, the cost of a node for a token, and the load and slots of nodes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from placement.arrays import Experts, Floats, Ints
from placement.dispatch import Dispatch
from placement.layout import Layout
from placement.traffic.initial_partition import EVERYWHERE, SPREAD, Start

Counts = npt.NDArray[np.int32]

SCALE = 4096.0  # whole numbers per unit of cost
MAX_SUM = 2.0**30


@dataclass(frozen=True, eq=False)
class Nodes:
    slots: Ints  # [nodes]
    gpus: Ints  # [nodes]
    shares: Floats  # [nodes]: of the total speed
    sources: Floats  # [nodes]: of all tokens

    @classmethod
    def of(cls, layout: Layout) -> "Nodes":
        """The sums over each node's GPUs."""
        gpus = np.bincount(layout.node_of_gpu, minlength=layout.nodes).astype(np.int64)
        slots = np.bincount(layout.node_of_gpu, weights=layout.slots_of_gpu, minlength=layout.nodes).astype(np.int64)
        shares = np.bincount(layout.node_of_gpu, weights=layout.shares, minlength=layout.nodes).astype(np.float64)
        return cls(slots, gpus, shares, gpus / layout.gpus)


def with_capacity(start: Start, loads: Floats, nodes: Nodes) -> Ints | None:
    """[experts]: homes within all nodes' slots, after moves of the least loaded experts; None where impossible."""
    home = start.home.copy()
    for _ in range(len(home)):
        free = nodes.slots - used(home, start, nodes)
        node = int(free.argmin())
        if free[node] >= 0:
            return home
        movable = (home == node) & (start.least <= free.max())
        if not movable.any():
            return None
        home[int(np.where(movable, loads, np.inf).argmin())] = int(free.argmax())
    return None


def used(home: Ints, start: Start, nodes: Nodes) -> Ints:
    """[nodes]: slots."""
    at_home = home >= 0
    taken = np.bincount(home[at_home], weights=start.least[at_home], minlength=len(nodes.slots)).astype(np.int64)
    everywhere = int((home == EVERYWHERE).sum())
    found: Ints = taken + everywhere + start.copies[home == SPREAD].sum(axis=0)
    return found


def carried(home: Ints, start: Start, loads: Floats, nodes: Nodes, *, rule: Dispatch) -> Floats:
    """[nodes]: load."""
    at_home, spread = home >= 0, home == SPREAD
    found = np.bincount(home[at_home], weights=loads[at_home], minlength=len(nodes.slots)).astype(np.float64)
    found += nodes.sources * loads[home == EVERYWHERE].sum()
    copies = start.copies[spread]
    near = (copies > 0) & (rule is Dispatch.NEAREST)
    far = 1.0 - (near * nodes.sources).sum(axis=1, keepdims=True)
    parts = near * nodes.sources + far * copies / copies.sum(axis=1, keepdims=True)
    found += (loads[spread, np.newaxis] * parts).sum(axis=0)
    return found


def tokens_of_experts(trace: Experts, *, experts: int) -> tuple[Ints, Counts]:
    """The tokens of expert e are the second array [tokens * k] from first[e] up to first[e + 1]."""
    counts = np.bincount(trace.ravel(), minlength=experts)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    order = np.argsort(trace.ravel(), kind="stable") // trace.shape[1]
    return first, order.astype(np.int32)


def weights(trace: Experts, home: Ints, start: Start, cost: Floats, *, scale: float, rule: Dispatch) -> Counts:
    """[tokens, nodes], W of `hypergraph_gains`: `cost` [sources, nodes] weighted by source, times `scale`, whole."""
    spread = (home == SPREAD)[trace]
    rows = np.flatnonzero(spread.any(axis=1))
    found = np.tile(cost.sum(axis=0), (len(trace), 1))
    if len(rows):
        share = start.copies / np.maximum(start.copies.sum(axis=1, keepdims=True), 1)
        stays = (share > 0) & (rule is Dispatch.NEAREST)
        misses = np.where(stays[:, :, np.newaxis], 1.0, 1.0 - share[:, np.newaxis, :])  # by source and node
        missed = np.ones((len(rows), *cost.shape))
        for nth in range(trace.shape[1]):
            wide = np.flatnonzero(spread[rows, nth])
            missed[wide] *= misses[trace[rows[wide], nth]]
        found[rows] = (missed * cost).sum(axis=1)
    return np.rint(scale * found).astype(np.int32)
