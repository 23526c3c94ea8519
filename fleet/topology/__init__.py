"""The hardware tree: site > power domains (UPS, PDU, row, rack) and network (spine, leaf, rail) > node > GPU.

Read a `Topology` with `fleet.documents.read_model`, or from a cluster's labels with `topology_from_*_nodes`, and query
`topology.index`.  docs/reference/topology.md explains the document format.
"""

from fleet.topology.discovery import (
    Discovery,
    Unknown,
    topology_from_kubernetes_nodes,
    topology_from_ray_nodes,
)
from fleet.topology.document import Topology
from fleet.topology.elements import Node, PowerDomain, PowerKind, Redundancy, Site, Switch, Tier
from fleet.topology.index import Distance, TopologyIndex
from fleet.topology.labels import LabelNames

__all__ = [
    "Discovery",
    "Distance",
    "LabelNames",
    "Node",
    "PowerDomain",
    "PowerKind",
    "Redundancy",
    "Site",
    "Switch",
    "Tier",
    "Topology",
    "TopologyIndex",
    "Unknown",
    "topology_from_kubernetes_nodes",
    "topology_from_ray_nodes",
]
