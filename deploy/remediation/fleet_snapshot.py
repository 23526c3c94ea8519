"""The fleet as the quarantine policy takes it: members with their pools and failure domains, and spares."""

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from api.schemas.quarantine import Evaluation, MemberReport, ProbeReport
from deploy.remediation.cluster_interface import ClusterSnapshot
from deploy.remediation.ray_nodes import RayNode
from fleet.topology import LabelNames
from fleet.topology.labels import first_set

_NAMES = LabelNames()


def evaluation_of(snapshot: ClusterSnapshot, *, out: AbstractSet[str], probed: Mapping[str, ProbeReport]) -> Evaluation:
    """Report all nodes but the head node, which is never drained because it runs the cluster's own services."""
    nodes = [node for node in snapshot.nodes if not node.is_head]
    members = {
        node.name: MemberReport(
            pool=node.pool,
            domains=domains_of(node),
            absent=node.name not in out and (node.draining or node.is_probe_only),
        )
        for node in nodes
    }
    known = {name: probe for name, probe in probed.items() if name in members}
    return Evaluation(members=members, spares=spares(snapshot, nodes, out=out), probed=known)


def domains_of(node: RayNode) -> tuple[str, ...]:
    levels = (_NAMES.leaf, _NAMES.rack, _NAMES.pdu)
    found = (first_set(node.labels, names) for names in levels)
    return tuple(dict.fromkeys(name for name in found if name is not None))


def spares(snapshot: ClusterSnapshot, nodes: list[RayNode], *, out: AbstractSet[str]) -> dict[str, int]:
    """Return the spares per pool: nodes without a rank that have room for the largest worker of any run."""
    busy = {place.node_id for run in snapshot.runs for place in run.places}
    largest: Counter[str] = Counter()
    for run in snapshot.runs:
        largest |= Counter({name: amount for name, amount in run.worker_resources.items() if amount > 0})
    free = [
        node.pool
        for node in nodes
        if node.id not in busy
        and node.name not in out
        and not node.draining
        and not node.is_probe_only
        and node.has_room_for(largest)
    ]
    return dict(Counter(free))
