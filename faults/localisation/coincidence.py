"""How unlikely is it that a host is healthy and its edges are slow for separate reasons of their own?

The sum of noise over windows says that the edges are slow, however long one looks; it does not say why.  Congestion
lasts, so a second window of it is no second witness.  For each slow edge the cheapest other reason is paid once: it
is odd (log odds against it), or its uplink is congested (log odds, plus what that would cost the other edges on the
same cable, which witness against it).  Edges behind one cable share the one payment: two edges behind one uplink are
one accuser.
"""

import numpy as np

from faults.fabric import NOWHERE, Fabric, Floats
from faults.localisation.board import Board
from faults.localisation.entities import Entities, Kind

LEAST = 0.5  # nats: no reason is free
ACCUSES = 0.7  # nats in one window
NEARLY_ALL = 0.75  # of the nats


def price_of_chance(  # noqa: PLR0917 - arrays of one window
    fabric: Fabric,
    all_of: Entities,
    board: Board,
    explained: Floats,
    entity: int,
    slowdown: float,
    *,
    odd: float,
    cable: float,
    windows: int,
) -> tuple[float, int]:
    """(nats, edges that accuse): the least that the slow edges of a host cost if the host is healthy.

    `windows` have accused like this one: that an edge is slow gets surer with each, why it is does not.
    """
    mine = all_of.edges_of(entity)
    share = all_of.share[all_of.first[entity] : all_of.first[entity + 1]]
    predicted = share * slowdown
    gain = windows * (_loss(board, mine, 0.0 * predicted) - _loss(board, mine, predicted))
    accuses = gain > windows * ACCUSES
    uplinks = {}
    for edge in mine[accuses]:
        for kind, number in ((Kind.UP, int(fabric.up[edge])), (Kind.DOWN, int(fabric.down[edge]))):
            if number != NOWHERE and (kind, number) not in uplinks:
                uplinks[kind, number] = cable + _witness(all_of, board, explained, int(edge), kind, mine, slowdown)
    return _pay(fabric, mine[accuses], gain[accuses], uplinks, odd), int(accuses.sum())


def rests_on_one_pair(all_of: Entities, board: Board, entity: int, slowdown: float) -> bool:
    """Whether a host is accused by one pair of NICs alone, both ways taken together: then the link may be to blame."""
    mine = all_of.edges_of(entity)
    share = all_of.share[all_of.first[entity] : all_of.first[entity + 1]]
    gain = np.maximum(_loss(board, mine, 0.0 * share) - _loss(board, mine, share * slowdown), 0.0)
    pair = all_of.pair[mine]
    back = all_of.pairs.back[pair]
    both = np.unique(np.where(back >= 0, np.minimum(pair, back), pair), return_inverse=True)[1]
    return bool(np.bincount(both, gain).max() >= NEARLY_ALL * gain.sum())


def _pay(fabric: Fabric, edges: np.ndarray, gain: Floats, uplinks: dict[tuple[Kind, int], float], odd: float) -> float:
    total = 0.0
    paid: set[tuple[Kind, int]] = set()
    for edge, won in zip(edges, gain, strict=True):
        ways = [(Kind.UP, int(fabric.up[edge])), (Kind.DOWN, int(fabric.down[edge]))]
        if any(way in paid for way in ways):
            continue
        cheapest = min((way for way in ways if way in uplinks), key=lambda way: uplinks[way], default=None)
        if cheapest is not None and uplinks[cheapest] < odd:
            paid.add(cheapest)
            total += max(LEAST, uplinks[cheapest])
        else:
            total += min(odd, max(float(won), 0.0))
    return total


def _witness(  # noqa: PLR0917 - arrays of one window
    all_of: Entities, board: Board, explained: Floats, edge: int, kind: Kind, mine: np.ndarray, slowdown: float
) -> float:
    """Nats by which the other edges on the same cable speak against its being congested."""
    around = all_of.entity[all_of.begin[edge] : all_of.begin[edge + 1]]
    cable = int(around[all_of.kind[around] == kind][0])
    others = np.setdiff1d(all_of.edges_of(cable), mine)
    if not others.size:
        return 0.0
    would = np.maximum(explained[others], slowdown * board.misfit[cable])  # at the least felt
    against = _loss(board, others, would) - _loss(board, others, explained[others])
    return max(0.0, float(against.sum()))


def _loss(board: Board, edges: np.ndarray, predicted: Floats) -> Floats:
    """As `board` has it, without the softness; an edge not heard has none."""
    residual, scale, tail = board.residual[edges], board.scale[edges], board.tail[edges]
    loss = 0.5 * (tail + 1.0) * np.log1p(((residual - predicted) / scale) ** 2 / tail)
    return np.where(np.isfinite(loss), loss, 0.0)
