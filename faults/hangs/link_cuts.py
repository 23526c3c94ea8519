"""Bytes that do not arrive: which pairs, which way, and whether they have a node in common.

A pair of nodes is cut where one end has sent, hears no acknowledgement, and has retransmitted more than once in vain.
Which way is told by both ends' counters: A acknowledged and F sent but not acknowledged at the sender, R received at
the other end.  After retransmissions

    a -> b delivers    R_b = A_a + F_a    (all that was sent came: what is lost are acknowledgements, which go b -> a)
    a -> b is dead     R_b < A_a + F_a    (part of it may have come before the cut, with its acknowledgement on the way)

The counters stand still in a standstill, so the two looks need not be of the same moment.  Where so little was under
way that it may all have come before the cut (TOLD_BYTES), a node's direction is left open.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from faults.diagnosis import Direction
from faults.hangs.settings import HangSettings
from faults.job_state import JobState, PairTraffic
from faults.job_state.pairs import HANDSHAKE_BYTES

Edge = tuple[int, int]
TOLD_BYTES = 2 * 1448  # two packets: acknowledgements are sent for every second one at the latest


class Cut(NamedTuple):
    """A pair between which nothing gets through: `dead` ways are known to be so, `live` ways to deliver."""

    dead: frozenset[Edge]
    live: frozenset[Edge]
    backoff: int
    came_bytes: int  # on a live way, without an acknowledgement coming back


class CutNode(NamedTuple):
    """A node all of whose tried pairs are cut."""

    node: int
    peers: tuple[int, ...]
    direction: Direction | None
    backoff: int


class CutLink(NamedTuple):
    """A pair alone: from node to peer, or both ways; None where only one end was seen, which cannot tell."""

    node: int
    peer: int
    direction: Direction | None
    backoff: int


def cuts(state: JobState, settings: HangSettings, *, since_s: float) -> dict[Edge, Cut]:
    """By pair, lower node first: what has been outstanding in vain since the standstill."""
    found = {}
    for key in sorted(state.stuck):
        pair = state.pairs[key]
        if _in_vain(pair, settings, since_s=since_s):
            ends = (min(key), max(key))
            found[ends] = _cut(state, ends)
    return found


def placed(found: Mapping[Edge, Cut], state: JobState, *, since_s: float) -> list[CutNode | CutLink]:
    """The fewest nodes and links that explain all cuts; a node only where it has two cut peers and no live one."""
    of_node: dict[int, set[int]] = defaultdict(set)
    for one, other in found:
        of_node[one].add(other)
        of_node[other].add(one)
    left, named = set(found), list[CutNode | CutLink]()
    while left:
        weight = {node: sum(tuple(sorted((node, peer))) in left for peer in peers) for node, peers in of_node.items()}
        node = max(weight, key=lambda each: (weight[each], -each))
        if weight[node] < 2 or _still_talks(node, of_node[node], state, since_s=since_s):
            of_node.pop(node)
            if weight[node] < 2 or not of_node:
                break
            continue
        named.append(_cut_node(node, sorted(of_node[node]), found))
        left = {ends for ends in left if node not in ends}
        of_node.pop(node)
    return named + [_cut_link(ends, found[ends]) for ends in sorted(left)]


def undecided(found: Mapping[Edge, Cut], state: JobState, *, since_s: float) -> bool:
    """Whether a further pair of one of these nodes is about to be cut: then a link may yet turn out to be a node."""
    nodes = {node for ends in found for node in ends}
    others = (key for key in state.stuck if nodes.intersection(key) and (min(key), max(key)) not in found)
    return any(state.pairs[key].socket.backoff > 0 and state.pairs[key].at_s >= since_s for key in others)


def _in_vain(pair: PairTraffic, settings: HangSettings, *, since_s: float) -> bool:
    return (
        pair.looks_stuck >= settings.looks
        and pair.stuck_s() >= settings.cut_s
        and pair.socket.backoff >= settings.cut_backoff
        and pair.at_s >= since_s
    )


def _cut(state: JobState, ends: Edge) -> Cut:
    one, other = ends
    dead, live = set[Edge](), set[Edge]()
    backoff = came_bytes = 0
    for edge in ((one, other), (other, one)):
        sender, receiver = state.pairs.get(edge), state.pairs.get((edge[1], edge[0]))
        if sender is None or sender.stuck_since_s is None:
            continue
        backoff = max(backoff, sender.socket.backoff)
        if receiver is None or receiver.at_s < sender.stuck_since_s:
            continue  # its agent has not looked since
        came = receiver.socket.received_bytes - sender.socket.acked_bytes
        under_way = sender.socket.write_queue_bytes - sender.socket.unsent_bytes
        delivers = came > HANDSHAKE_BYTES and came + HANDSHAKE_BYTES >= under_way
        (live if delivers else dead).add(edge)
        came_bytes += came if delivers else 0
    return Cut(frozenset(dead), frozenset(live), backoff, came_bytes)


def _still_talks(node: int, cut_peers: Iterable[int], state: JobState, *, since_s: float) -> bool:
    """Whether bytes have moved between the node and somebody else, and not before the cut: between two looks since."""
    apart = set(cut_peers)
    return any(
        pair.moved_from_s >= since_s
        for peer in range(state.job.nodes)
        if peer not in apart
        for pair in (state.pairs.get((node, peer)), state.pairs.get((peer, node)))
        if pair is not None
    )


def _cut_node(node: int, peers: list[int], found: Mapping[Edge, Cut]) -> CutNode:
    mine = [found[(min(node, peer), max(node, peer))] for peer in peers]
    return CutNode(node, tuple(peers), _direction(node, mine), max(cut.backoff for cut in mine))


def _direction(node: int, mine: list[Cut]) -> Direction | None:
    """Both ways if both are known to be dead; one way if enough came the other way; else not told."""
    dead = {edge for cut in mine for edge in cut.dead}
    live = {edge for cut in mine for edge in cut.live}
    if any(edge[0] == node for edge in dead) and any(edge[1] == node for edge in dead):
        return Direction.BOTH
    sends, receives = any(edge[0] == node for edge in live), any(edge[1] == node for edge in live)
    if sends == receives or sum(cut.came_bytes for cut in mine) <= TOLD_BYTES:
        return None
    return Direction.RX if sends else Direction.TX


def _cut_link(ends: Edge, cut: Cut) -> CutLink:
    """One way where one way is dead and the other is not.

    A sender that hears nothing back does not know whether its bytes or their acknowledgements are lost.
    """
    if len(cut.dead) == 1:
        (edge,) = cut.dead
    elif not cut.dead and cut.live:  # acknowledgements alone are missing: the way back is dead
        edge = next(iter(cut.live))[::-1]
    elif not cut.dead:
        return CutLink(*ends, None, cut.backoff)
    else:
        return CutLink(*ends, Direction.BOTH, cut.backoff)
    return CutLink(edge[0], edge[1], Direction.FORWARD, cut.backoff)
