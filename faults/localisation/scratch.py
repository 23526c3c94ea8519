"""Buffers for one window of all edges and entities.

A window of 16,384 ranks fills megabytes, so the localiser reuses its buffers.  They are no part of its state.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Fabric, Floats
from faults.localisation.entities import Entities, Indices


class Ways(NamedTuple):
    """The entities on the path of each edge, and the kind of each entity."""

    source: Indices  # per edge: NIC
    target: Indices
    up: Indices  # per edge: cable, or NOWHERE
    down: Indices
    node: Indices  # per NIC
    leaf: Indices
    kind: NDArray[np.int8]  # per entity
    which: Indices
    leak: float


class Sums(NamedTuple):
    """Sums of one window."""

    out: NDArray[np.float64]  # per NIC
    into: NDArray[np.float64]
    itself: NDArray[np.float64]  # per NIC: edges to itself
    up: NDArray[np.float64]
    down: NDArray[np.float64]
    node: NDArray[np.float64]
    leaf: NDArray[np.float64]


class Read(NamedTuple):
    """One window relative to the baseline."""

    measured: Floats  # per edge: without the level
    fresh: Floats  # per edge: share of the variance that is independent in each window
    observed: NDArray[np.bool_]  # per entity: any of its edges
    score: Floats  # per entity: weighted sum of clipped standard scores, in standard deviations
    outlying: Indices  # outlying edges, as many as are counted
    counts: NDArray[np.int64]  # observed edges, and outlying ones
    amount: Floats  # per edge: the summand
    norm: Floats  # per entity: sum of squared shares
    sums: Sums


def ways(fabric: Fabric, all_of: Entities) -> Ways:
    source, target, up, down, node, leaf = (
        np.ascontiguousarray(column, np.int32)
        for column in (fabric.source, fabric.target, fabric.up, fabric.down, fabric.node, fabric.leaf)
    )
    kind, which = all_of.kind.astype(np.int8), all_of.which.astype(np.int32)
    return Ways(source, target, up, down, node, leaf, kind, which, all_of.pairs.leak)


def read(of: Ways) -> Read:
    edges, entities = of.source.size, of.kind.size
    return Read(
        measured=np.empty(edges),
        fresh=np.empty(edges),
        observed=np.empty(entities, bool),
        score=np.empty(entities),
        outlying=np.empty(edges, np.int32),
        counts=np.empty(2, np.int64),
        amount=np.empty(edges),
        norm=np.empty(entities),
        sums=_sums(of),
    )


def _sums(of: Ways) -> Sums:
    ports, nodes, leaves = of.node.size, int(of.node.max()) + 1, max(int(of.leaf.max()), 0) + 1
    ups, downs = max(int(of.up.max()), 0) + 1, max(int(of.down.max()), 0) + 1
    return Sums(*(np.empty(size) for size in (ports, ports, ports, ups, downs, nodes, leaves)))
