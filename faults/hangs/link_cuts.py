"""Lost packets: the pairs of nodes, the direction, and whether the pairs have a node in common.

A pair of nodes is cut if one end has unacknowledged bytes and more than one failed retransmission.  The counters of
both ends give the direction (docs/explanation/faults/hangs.md, "Direction of a cut").  They do not move in a stall, so
the samples of both ends need not be simultaneous.  If so few bytes were in flight that all can have arrived before the
cut (MIN_BYTES), the direction of a node is unknown.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from faults.diagnosis import Direction
from faults.hangs.settings import HangSettings
from faults.job_state import JobState, PairTraffic
from faults.job_state.pairs import HANDSHAKE_BYTES

Edge = tuple[int, int]
MIN_BYTES = 2 * 1448  # two packets: TCP acknowledges at least every second packet


class Cut(NamedTuple):
    """A pair that loses all packets: `dead` directions are known to lose them, `live` directions to deliver."""

    dead: frozenset[Edge]
    live: frozenset[Edge]
    backoff: int
    came_bytes: int  # received in a live direction without an acknowledgement coming back


class CutNode(NamedTuple):
    """A node whose active pairs are all cut."""

    node: int
    peers: tuple[int, ...]
    direction: Direction | None
    backoff: int


class CutLink(NamedTuple):
    """A single pair: one direction or both; None if only one end was observed."""

    node: int
    peer: int
    direction: Direction | None
    backoff: int


def cuts(state: JobState, settings: HangSettings, *, since_s: float) -> dict[Edge, Cut]:
    """Return the cut pairs since the stall, lower node first."""
    found = {}
    for key in sorted(state.stuck):
        pair = state.pairs[key]
        if _is_unacked(pair, settings, since_s=since_s):
            ends = (min(key), max(key))
            found[ends] = _cut(state, ends)
    return found


def placed(found: Mapping[Edge, Cut], state: JobState, *, since_s: float) -> list[CutNode | CutLink]:
    """Return the fewest nodes and links that explain all cuts; a node needs two cut peers and no live one."""
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
    """Return whether another pair of one of these nodes is about to be cut: the link can then still become a node."""
    nodes = {node for ends in found for node in ends}
    others = (key for key in state.stuck if nodes.intersection(key) and (min(key), max(key)) not in found)
    return any(state.pairs[key].socket.backoff > 0 and state.pairs[key].at_s >= since_s for key in others)


def _is_unacked(pair: PairTraffic, settings: HangSettings, *, since_s: float) -> bool:
    return (
        pair.stuck_samples >= settings.looks
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
            continue  # its agent has not sampled since
        came = receiver.socket.received_bytes - sender.socket.acked_bytes
        under_way = sender.socket.write_queue_bytes - sender.socket.unsent_bytes
        delivers = came > HANDSHAKE_BYTES and came + HANDSHAKE_BYTES >= under_way
        (live if delivers else dead).add(edge)
        came_bytes += came if delivers else 0
    return Cut(frozenset(dead), frozenset(live), backoff, came_bytes)


def _still_talks(node: int, cut_peers: Iterable[int], state: JobState, *, since_s: float) -> bool:
    """Return whether the node exchanged bytes with another node between two samples after the cut."""
    cut_off = set(cut_peers)
    return any(
        pair.moved_from_s >= since_s
        for peer in range(state.job.nodes)
        if peer not in cut_off
        for pair in (state.pairs.get((node, peer)), state.pairs.get((peer, node)))
        if pair is not None
    )


def _cut_node(node: int, peers: list[int], found: Mapping[Edge, Cut]) -> CutNode:
    mine = [found[(min(node, peer), max(node, peer))] for peer in peers]
    return CutNode(node, tuple(peers), _direction(node, mine), max(cut.backoff for cut in mine))


def _direction(node: int, mine: list[Cut]) -> Direction | None:
    """Return both directions if both are dead; one if enough bytes came the other way; otherwise unknown."""
    dead = {edge for cut in mine for edge in cut.dead}
    live = {edge for cut in mine for edge in cut.live}
    if any(edge[0] == node for edge in dead) and any(edge[1] == node for edge in dead):
        return Direction.BOTH
    sends, receives = any(edge[0] == node for edge in live), any(edge[1] == node for edge in live)
    if sends == receives or sum(cut.came_bytes for cut in mine) <= MIN_BYTES:
        return None
    return Direction.RX if sends else Direction.TX


def _cut_link(ends: Edge, cut: Cut) -> CutLink:
    """Return one direction if it is dead and the other one is not.

    A sender without acknowledgements cannot distinguish lost bytes from lost acknowledgements.
    """
    if len(cut.dead) == 1:
        (edge,) = cut.dead
    elif not cut.dead and cut.live:  # only acknowledgements are missing: the reverse direction is dead
        edge = next(iter(cut.live))[::-1]
    elif not cut.dead:
        return CutLink(*ends, None, cut.backoff)
    else:
        return CutLink(*ends, Direction.BOTH, cut.backoff)
    return CutLink(edge[0], edge[1], Direction.FORWARD, cut.backoff)
