"""Which nodes need a watcher: from what is there now, to what is to be started and ended.

A node has an index, by which recordings and a job's watcher know it.  It is part of the watcher's name, so that a
controller that begins anew finds it; a node keeps its own while its watcher lives, and new nodes fill the gaps.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from deploy.ray_actor.cluster import NodeFacts
from deploy.ray_actor.messages import WatchOrder, WatchSettings
from deploy.ray_actor.names import HostName, WatcherName, hosts_among, watchers_among


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """What is to be done about watchers now."""

    start: tuple[WatcherName, ...] = ()
    keep: tuple[WatcherName, ...] = ()
    end: tuple[WatcherName, ...] = ()


def plan_watchers(host: HostName, *, nodes: Iterable[NodeFacts], names: frozenset[str], watching: bool) -> WatchPlan:
    """One watcher of this controller on each node that is not draining, and no others of its name.

    While an older generation is there it is that one's turn: nothing is started, and nothing of it is ended.
    """
    if any(each.name == host.name and each.generation < host.generation for each in hosts_among(names)):
        return WatchPlan()
    there = [each for each in watchers_among(names) if each.host.name == host.name]
    wanted = {node.node_id for node in nodes if not node.draining} if watching else set()
    keep: dict[str, WatcherName] = {}
    for each in there:  # of two on one node, or with one index, the first stays
        taken = {kept.index for kept in keep.values()}
        if each.host == host and each.node_id in wanted and each.node_id not in keep and each.index not in taken:
            keep[each.node_id] = each
    order = {node.node_id: (not node.is_head, node.name, node.address, node.node_id) for node in nodes}
    missing = sorted(wanted - keep.keys(), key=order.__getitem__)
    indices = _free({each.index for each in keep.values()})
    return WatchPlan(
        start=tuple(WatcherName(host, next(indices), node_id) for node_id in missing),
        keep=tuple(keep.values()),
        end=tuple(each for each in there if each not in keep.values()),
    )


def orders_for(
    watchers: Iterable[WatcherName], *, nodes: Iterable[NodeFacts], settings: WatchSettings
) -> dict[WatcherName, WatchOrder]:
    """What each watcher is told.  An address that several nodes have tells none of them from the others."""
    watchers, facts = list(watchers), {node.node_id: node for node in nodes}
    watchers = [each for each in watchers if each.node_id in facts]
    shared = Counter(facts[each.node_id].address for each in watchers)
    peers = {facts[each.node_id].address: each.index for each in watchers if shared[facts[each.node_id].address] == 1}
    ports = tuple(sorted({port for node in facts.values() for port in node.ports}))
    return {
        each: WatchOrder(
            index=each.index,
            node_name=facts[each.node_id].name,
            peers=peers if len(peers) > 1 else {},
            ignored_ports=ports,
            gpus=facts[each.node_id].gpus,
            accelerator=facts[each.node_id].accelerator,
            settings=settings,
        )
        for each in watchers
    }


def _free(taken: set[int]) -> Iterator[int]:
    return (index for index in count() if index not in taken)
