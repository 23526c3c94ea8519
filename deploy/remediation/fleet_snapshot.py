"""What the isolation policy is told of the fleet: members with their pools and failure domains, and spares."""

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from api.schemas.quarantine import Look, ProbeEnd, SeenMember
from deploy.remediation.cluster_interface import Sight
from deploy.remediation.ray_nodes import RayNode
from fleet.topology import LabelNames
from fleet.topology.labels import first_set

_NAMES = LabelNames()


def look_of(sight: Sight, *, out: AbstractSet[str], probed: Mapping[str, ProbeEnd]) -> Look:
    """All nodes but the head, which is never drained: it carries the cluster's own services."""
    nodes = [node for node in sight.nodes if not node.is_head]
    members = {
        node.name: SeenMember(
            pool=node.pool,
            domains=domains_of(node),
            absent=node.name not in out and (node.draining or node.on_probation),
        )
        for node in nodes
    }
    known = {name: end for name, end in probed.items() if name in members}
    return Look(members=members, spares=spares(sight, nodes, out=out), probed=known)


def domains_of(node: RayNode) -> tuple[str, ...]:
    """Whatever fails as one with others."""
    levels = (_NAMES.leaf, _NAMES.rack, _NAMES.pdu)
    found = (first_set(node.labels, names) for names in levels)
    return tuple(dict.fromkeys(name for name in found if name is not None))


def spares(sight: Sight, nodes: list[RayNode], *, out: AbstractSet[str]) -> dict[str, int]:
    """Per pool: nodes without a rank that have room for the largest worker of any run."""
    busy = {place.node_id for run in sight.runs for place in run.places}
    largest: Counter[str] = Counter()
    for run in sight.runs:
        largest |= Counter({name: amount for name, amount in run.worker_resources.items() if amount > 0})
    free = [
        node.pool
        for node in nodes
        if node.id not in busy
        and node.name not in out
        and not node.draining
        and not node.on_probation
        and node.has_room_for(largest)
    ]
    return dict(Counter(free))
