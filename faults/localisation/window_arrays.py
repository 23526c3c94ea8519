"""The arrays of the compiled fit: the sparse matrix both ways, and one window's values.

loss of edge e at predicted slowdown p, residual r, scale s, in nats above that of a perfect fit:

    (nu_e + 1) / 2 log(1 + (r - p)^2 / (nu_e (s^2 + (m p)^2))) + 1/2 log(1 + (m p / s)^2), at most odd_e

Student's t with nu = 4 as measured for noise, nearly normal for permanent differences; m: misfit of the explanation;
odd_e: the cost of an outlier.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Fabric, Floats
from faults.localisation.entities import Entities, Indices

NU = 4.0
MAX = 6.0  # log slowdown: 400 times; more is a hang


class WindowArrays(NamedTuple):
    first: NDArray[np.int32]
    edge: NDArray[np.int32]
    share: NDArray[np.float64]
    begin: NDArray[np.int32]
    entity: NDArray[np.int32]
    part: NDArray[np.float64]
    misfit: NDArray[np.float64]  # per entity
    weight: NDArray[np.float64]  # per entity: 1 / inflation for correlated noise
    price: NDArray[np.float64]  # per entity, nats
    residual: NDArray[np.float64]  # per edge; NaN: not observed
    scale: NDArray[np.float64]  # per edge
    tail: NDArray[np.float64]  # per edge: degrees of freedom
    odd: NDArray[np.float64]  # per edge: the most that it may cost
    least: NDArray[np.float64]  # [0]: smallest slowdown (log) that may explain anything


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
    out: NDArray[np.float64]  # per NIC
    into: NDArray[np.float64]
    itself: NDArray[np.float64]  # per NIC: edges to itself
    up: NDArray[np.float64]
    down: NDArray[np.float64]
    node: NDArray[np.float64]
    leaf: NDArray[np.float64]


class Read(NamedTuple):
    """One window relative to the baseline: buffers that the localiser reuses, no part of its state."""

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
