"""Everything that can slow an edge, as a sparse matrix by entity and by edge: docs/explanation/faults/localisation.md.

An uplink up and one down are two entities, even if numbered alike.  Links are not in it: each explains its own edges
only, and the fit treats them as outliers.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from faults.fabric import NOWHERE, Fabric, Floats, Ints
from faults.localisation.settings import LocaliserSettings

Indices = NDArray[np.int32]


class Kind(IntEnum):
    """What an entity is; hosts first."""

    TX = 0
    RX = 1
    NIC = 2
    NODE = 3
    LEAF = 4
    UP = 5
    DOWN = 6


SWITCHES = (Kind.LEAF, Kind.UP, Kind.DOWN)


class Links(NamedTuple):
    """Evidence per pair of NICs, one way."""

    nats: Floats
    since: Floats  # start of the evidence, s
    hits: NDArray[np.uint32]  # whether a window supports it alone, newest in the lowest bit
    probed: Floats  # of the nats: from probes
    unobserved: NDArray[np.uint32]  # whether nothing was observed of a suspect in a window, likewise


def links_of(pairs: int) -> Links:
    return Links(
        nats=np.zeros(pairs),
        since=np.full(pairs, np.nan),
        hits=np.zeros(pairs, np.uint32),
        probed=np.zeros(pairs),
        unobserved=np.zeros(pairs, np.uint32),
    )


class Elsewhere(NamedTuple):
    """The slowdown (log) of each edge by causes other than its link."""

    by_all: Floats
    by_others: Floats  # without cables: a link may be slow beyond a congested cable


class Pairs(NamedTuple):
    """The edges of each pair of NICs, one way."""

    first: Indices
    edge: Indices
    back: Indices  # the pair in the other direction, or -1
    feels: Floats  # per edge: share of a loss of bandwidth that shows
    leak: float


@dataclass(frozen=True, slots=True)
class Entities:
    """Columns of A by entity (`first`, `edge`, `share`) and rows by edge (`begin`, `entity`, `part`)."""

    kind: Ints
    which: Ints  # NIC, node, leaf or uplink, by kind
    slot: Ints  # entities that share one suspect: Tx, Rx and both of one NIC
    slots: int
    first: Indices
    edge: Indices
    share: Floats
    begin: Indices
    entity: Indices
    part: Floats
    full: Floats  # per entity: sum of squared shares
    pair: Indices  # link per edge
    pairs: Pairs
    of_kind: tuple[slice, ...]  # entities lie kind by kind

    def __len__(self) -> int:
        return int(self.kind.size)

    def edges_of(self, entity: int) -> Indices:
        return self.edge[self.first[entity] : self.first[entity + 1]]


def entities(fabric: Fabric, settings: LocaliserSettings) -> Entities:
    """Return all entities of a fabric with an edge on them."""
    ports, nodes = fabric.node.size, int(fabric.node.max()) + 1
    leaves = int(fabric.leaf.max()) + 1
    ups, downs = int(fabric.up.max()) + 1, int(fabric.down.max()) + 1
    offset = np.cumsum([0, ports, ports, ports, nodes, leaves, ups, downs])
    which_edge, which, share = _incidence(fabric, settings, offset)
    known, which = np.unique(which, return_inverse=True)
    kind = np.searchsorted(offset, known, side="right") - 1
    number = known - offset[kind]
    slot = np.where(kind <= Kind.NIC, number, known - 2 * ports)
    by_entity, by_edge = np.lexsort((which_edge, which)), np.lexsort((which, which_edge))
    pair, pairs = _pairs(fabric, settings)
    ends = np.searchsorted(kind, np.arange(len(Kind) + 1))
    return Entities(
        kind=kind,
        which=number,
        slot=slot,
        slots=int(slot.max()) + 1,
        first=_starts(which, known.size),
        edge=which_edge[by_entity].astype(np.int32),
        share=share[by_entity],
        begin=_starts(which_edge, len(fabric)),
        entity=which[by_edge].astype(np.int32),
        part=share[by_edge],
        full=np.asarray(np.bincount(which, share**2, minlength=known.size), np.float64),
        pair=pair,
        pairs=pairs,
        of_kind=tuple(slice(int(ends[k]), int(ends[k + 1])) for k in Kind),
    )


def _incidence(fabric: Fabric, settings: LocaliserSettings, offset: Ints) -> tuple[Ints, Ints, Floats]:
    """Return (edge, entity, share), each pair once, with its largest share."""
    source, target = fabric.source, fabric.target
    on_way = [
        (Kind.TX, source, 1.0),
        (Kind.RX, target, 1.0),
        (Kind.TX, target, settings.leak),
        (Kind.RX, source, settings.leak),
        *((Kind.NIC, end, 1.0) for end in (source, target)),
        *((Kind.NODE, fabric.node[end], 1.0) for end in (source, target)),
        *((Kind.LEAF, np.where(fabric.leaf[end] < 0, NOWHERE, fabric.leaf[end]), 1.0) for end in (source, target)),
        (Kind.UP, fabric.up, 1.0),
        (Kind.DOWN, fabric.down, 1.0),
    ]
    feels = np.asarray(settings.feels)[fabric.traffic]
    edge = np.arange(len(fabric))
    parts = []
    for kind, which, share in on_way:
        there = which != NOWHERE
        if share > 0.0:
            parts.append((edge[there], offset[kind] + which[there], share * feels[there]))
    which_edge, which, share_of = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((-share_of, which, which_edge))
    which_edge, which, share_of = which_edge[order], which[order], share_of[order]
    new = np.ones(order.size, bool)
    new[1:] = (which_edge[1:] != which_edge[:-1]) | (which[1:] != which[:-1])
    return which_edge[new], which[new], share_of[new]


def _starts(of: Ints, count: int) -> Indices:
    return np.concatenate([[0], np.cumsum(np.bincount(of, minlength=count))]).astype(np.int32)


def _pairs(fabric: Fabric, settings: LocaliserSettings) -> tuple[Indices, Pairs]:
    ports = fabric.node.size
    known, pair = np.unique(fabric.source * ports + fabric.target, return_inverse=True)
    wanted = known % ports * ports + known // ports
    at = np.minimum(np.searchsorted(known, wanted), known.size - 1)
    return pair.astype(np.int32), Pairs(
        first=_starts(pair, known.size),
        edge=np.argsort(pair, kind="stable").astype(np.int32),
        back=np.where(known[at] == wanted, at, -1).astype(np.int32),
        feels=np.asarray(settings.feels)[fabric.traffic],
        leak=settings.leak,
    )


def ends_of_pairs(fabric: Fabric, pair: Indices, pairs: int) -> Ints:
    """Return (2, pairs): the NICs of each pair, from `pair` per edge."""
    ends = np.empty((2, pairs), np.int64)
    ends[0, pair], ends[1, pair] = fabric.source, fabric.target
    return ends
