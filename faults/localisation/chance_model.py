"""The cost of the chance explanation: a host is healthy, and its edges are slow for separate reasons.

The evidence over windows shows that the edges are slow, not why.  Congestion persists, so a second window of it is no
new evidence.  For each slow edge the cheapest alternative is paid once: an outlier (the log odds against it), or a
congested uplink (its log odds, plus its cost to the other edges on the same cable, which contradict it).  Edges behind
one cable share one payment: two edges behind one uplink count as one.

The acknowledgements of all edges into one NIC leave by the same leaf's cables, those of all edges out of it return over
them, on unknown paths: each takes one of S by its hash.  If a cable is congested with chance p, all of m such flows are
slow with chance

    E[p^J] = sum over j of S2(m, j) S! / (S - j)! / S^m p^j       J: the number of cables under m flows

(S2: Stirling numbers of the second kind), far above p^m.  Only a share `leak` of the cable's slowdown shows, so p is
that of a cable with a larger slowdown.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from faults.fabric import NOWHERE, Fabric, Floats, Ints
from faults.localisation.entities import Entities, Kind
from faults.localisation.window_arrays import WindowArrays

MIN = 0.5  # nats: every reason costs something
SUPPORTS = 0.7  # nats in one window
NEARLY_ALL = 0.75  # of the nats


def price_of_chance(  # noqa: PLR0917 - arrays of one window
    fabric: Fabric,
    all_of: Entities,
    arrays: WindowArrays,
    explained: Floats,
    entity: int,
    slowdown: float,
    *,
    odd: float,
    cable: float,
    congested_slowdown: float,
    windows: int,
) -> tuple[float, int]:
    """Return (nats, supporting edges): the least cost of a host's slow edges if the host is healthy.

    `congested_slowdown`: mean log slowdown of congested cables.  `windows` supported the host as this one does: they
    make the slowness of an edge more certain, not its cause.
    """
    mine = all_of.edges_of(entity)
    share = all_of.share[all_of.first[entity] : all_of.first[entity + 1]]
    predicted = share * slowdown
    gain = windows * (_loss(arrays, mine, 0.0 * predicted) - _loss(arrays, mine, predicted))
    supports = gain > windows * SUPPORTS
    uplinks = {}
    for edge in mine[supports]:
        for kind, number in ((Kind.UP, int(fabric.up[edge])), (Kind.DOWN, int(fabric.down[edge]))):
            if number != NOWHERE and (kind, number) not in uplinks:
                uplinks[kind, number] = cable + _contradiction(
                    all_of, arrays, explained, int(edge), kind, mine, slowdown
                )
    which = int(all_of.which[entity])
    ports = np.flatnonzero(fabric.node == which) if all_of.kind[entity] == Kind.NODE else np.array([which])
    payments = _payments(fabric, mine[supports], gain[supports], uplinks, odd)
    back = cable + slowdown / (max(all_of.pairs.leak, 1e-3) * congested_slowdown)
    return sum(_together(fabric, alike, back) for alike in _by_way_back(fabric, ports, payments)), int(supports.sum())


def rests_on_one_pair(all_of: Entities, arrays: WindowArrays, entity: int, slowdown: float) -> bool:
    """Return whether one pair of NICs alone supports a host, both directions together: the link may be the cause."""
    mine = all_of.edges_of(entity)
    share = all_of.share[all_of.first[entity] : all_of.first[entity + 1]]
    gain = np.maximum(_loss(arrays, mine, 0.0 * share) - _loss(arrays, mine, share * slowdown), 0.0)
    pair = all_of.pair[mine]
    back = all_of.pairs.back[pair]
    both = np.unique(np.where(back >= 0, np.minimum(pair, back), pair), return_inverse=True)[1]
    return bool(np.bincount(both, gain).max() >= NEARLY_ALL * gain.sum())


@dataclass(slots=True)
class _Payment:
    """The cheapest reason on the path of some edges: one cable, or one outlier."""

    nats: float
    edges: list[int] = field(default_factory=list)


def _payments(
    fabric: Fabric, edges: np.ndarray, gain: Floats, uplinks: dict[tuple[Kind, int], float], odd: float
) -> list[_Payment]:
    found: list[_Payment] = []
    paid: dict[tuple[Kind, int], _Payment] = {}
    for edge, won in zip(edges.tolist(), gain, strict=True):
        ways = [(Kind.UP, int(fabric.up[edge])), (Kind.DOWN, int(fabric.down[edge]))]
        shared = next((paid[way] for way in ways if way in paid), None)
        if shared is not None:
            shared.edges.append(edge)
            continue
        cheapest = min((way for way in ways if way in uplinks), key=lambda way: uplinks[way], default=None)
        if cheapest is not None and uplinks[cheapest] < odd:
            paid[cheapest] = _Payment(max(MIN, uplinks[cheapest]), [edge])
            found.append(paid[cheapest])
        else:
            found.append(_Payment(min(odd, max(float(won), 0.0)), [edge]))
    return found


def _by_way_back(fabric: Fabric, ports: Ints, payments: list[_Payment]) -> Iterator[list[_Payment]]:
    """Group the payments of edges whose acknowledgements leave the suspect's leaf, or return into it; the others stay
    single.
    """
    groups: dict[tuple[str, int], list[_Payment]] = {}
    for of in payments:
        begin, end = fabric.source[of.edges], fabric.target[of.edges]
        out = bool(np.isin(begin, ports).all())
        near, far = (fabric.leaf[begin], fabric.leaf[end]) if out else (fabric.leaf[end], fabric.leaf[begin])
        if near.min() == near.max() >= 0 and far.min() >= 0 and not (near == far).any():
            groups.setdefault(("out" if out else "into", int(near[0])), []).append(of)
        else:
            yield [of]
    yield from groups.values()


def _together(fabric: Fabric, payments: list[_Payment], back: float) -> float:
    """Return the cost: each payment for itself, or the most expensive ones by congestion of the reverse cables."""
    left = sum(of.nats for of in payments)
    leaf = int(fabric.leaf[fabric.source[payments[0].edges[0]]])
    cables = cables_of(fabric, leaf)
    if not cables:
        return left
    best, behind = left, 0
    for of in sorted(payments, key=lambda one: -one.nats / len(one.edges)):
        behind += len({(fabric.source[edge], fabric.target[edge], fabric.up[edge]) for edge in of.edges})
        left -= of.nats
        best = min(best, left + hashed_nats(behind, cables, back))
    return best


def cables_of(fabric: Fabric, leaf: int) -> int:
    """Return the number of uplinks of a leaf that the job uses; 0 if unknown."""
    return int(np.unique(fabric.up[(fabric.leaf[fabric.source] == leaf) & (fabric.up != NOWHERE)]).size)


def hashed_nats(flows: int, cables: int, nats: float) -> float:
    """Return -log E[p^J]: the cost that all of some flows, each on one of so many cables by its hash, meet congestion.

    `nats` is the cost of one congested cable.
    """
    ways = [0.0] * (flows + 1)  # chance that the flows so far lie on j cables
    ways[0] = 1.0
    for _ in range(flows):
        for j in range(flows, 0, -1):
            ways[j] = ways[j] * j / cables + ways[j - 1] * max(0.0, 1.0 - (j - 1) / cables)
        ways[0] = 0.0
    return -math.log(math.fsum(way * math.exp(-nats * j) for j, way in enumerate(ways)))


def _contradiction(  # noqa: PLR0917 - arrays of one window
    all_of: Entities, arrays: WindowArrays, explained: Floats, edge: int, kind: Kind, mine: np.ndarray, slowdown: float
) -> float:
    """Return by how many nats the other edges on the same cable contradict its congestion."""
    around = all_of.entity[all_of.begin[edge] : all_of.begin[edge + 1]]
    cable = int(around[all_of.kind[around] == kind][0])
    others = np.setdiff1d(all_of.edges_of(cable), mine)
    if not others.size:
        return 0.0
    would = np.maximum(explained[others], slowdown * arrays.misfit[cable])  # at the smallest sensitivity
    against = _loss(arrays, others, would) - _loss(arrays, others, explained[others])
    return max(0.0, float(against.sum()))


def _loss(arrays: WindowArrays, edges: np.ndarray, predicted: Floats) -> Floats:
    """Return the losses as in `window_arrays`, without the misfit; an unobserved edge costs nothing."""
    residual, scale, tail = arrays.residual[edges], arrays.scale[edges], arrays.tail[edges]
    loss = 0.5 * (tail + 1.0) * np.log1p(((residual - predicted) / scale) ** 2 / tail)
    return np.where(np.isfinite(loss), loss, 0.0)
