"""Which node actors to start and end, from the nodes and actors that exist.  Pure.

A node has an index for recordings and fault monitors.  The index is part of the node actor's name, so a restarted
controller finds it again; a node keeps its index while its node actor lives, and new nodes fill the gaps.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from deploy.ray_actor.interface import NodeFacts
from deploy.ray_actor.messages import NodeActorConfig, NodeActorSettings
from deploy.ray_actor.names import ControllerName, NodeActorName, controllers_among, node_actors_among


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeActorPlan:
    """Node actors to start, keep and end."""

    start: tuple[NodeActorName, ...] = ()
    keep: tuple[NodeActorName, ...] = ()
    end: tuple[NodeActorName, ...] = ()


def plan_node_actors(
    host: ControllerName, *, nodes: Iterable[NodeFacts], names: frozenset[str], enabled: bool
) -> NodeActorPlan:
    """Plan one node actor of this controller on each node that is not draining, and no others of its name.

    While an older generation exists, nothing is started or ended.
    """
    if any(each.name == host.name and each.generation < host.generation for each in controllers_among(names)):
        return NodeActorPlan()
    there = [each for each in node_actors_among(names) if each.host.name == host.name]
    wanted = {node.node_id for node in nodes if not node.draining} if enabled else set()
    keep: dict[str, NodeActorName] = {}
    for each in there:  # of two on one node, or with one index, keep the first
        taken = {kept.index for kept in keep.values()}
        if each.host == host and each.node_id in wanted and each.node_id not in keep and each.index not in taken:
            keep[each.node_id] = each
    order = {node.node_id: (not node.is_head, node.name, node.address, node.node_id) for node in nodes}
    missing = sorted(wanted - keep.keys(), key=order.__getitem__)
    indices = _free({each.index for each in keep.values()})
    return NodeActorPlan(
        start=tuple(NodeActorName(host, next(indices), node_id) for node_id in missing),
        keep=tuple(keep.values()),
        end=tuple(each for each in there if each not in keep.values()),
    )


def configs_for(
    node_actors: Iterable[NodeActorName], *, nodes: Iterable[NodeFacts], settings: NodeActorSettings
) -> dict[NodeActorName, NodeActorConfig]:
    """Return the configuration of each node actor, without addresses that several nodes share."""
    node_actors, facts = list(node_actors), {node.node_id: node for node in nodes}
    node_actors = [each for each in node_actors if each.node_id in facts]
    shared = Counter(facts[each.node_id].address for each in node_actors)
    peers = {
        facts[each.node_id].address: each.index for each in node_actors if shared[facts[each.node_id].address] == 1
    }
    ports = tuple(sorted({port for node in facts.values() for port in node.ports}))
    return {
        each: NodeActorConfig(
            index=each.index,
            node_name=facts[each.node_id].name,
            peers=peers if len(peers) > 1 else {},
            ignored_ports=ports,
            gpus=facts[each.node_id].gpus,
            accelerator=facts[each.node_id].accelerator,
            settings=settings,
        )
        for each in node_actors
    }


def _free(taken: set[int]) -> Iterator[int]:
    return (index for index in count() if index not in taken)
