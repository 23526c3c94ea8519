"""Queries on a topology: feeds of a node, children of a domain, network distance of two nodes.

The index is built once from a valid topology; each query is then a lookup or a walk along one branch.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import TypeVar

from fleet.errors import UnknownNameError
from fleet.topology.elements import Node, PowerDomain, Site, Switch, write_out

PartT = TypeVar("PartT")


class Distance(IntEnum):
    """The network path between two NICs, nearest first."""

    SAME_NODE = 0
    SAME_SCALE_UP = 1  # another node of one NVLink or xGMI fabric
    SAME_LEAF = 2  # one switch between them
    SAME_RAIL = 3  # leaf, spine, leaf, all of one rail
    VIA_SPINE = 4  # leaf, spine, leaf of another rail
    VIA_CORE = 5
    UNKNOWN = 6  # the document has no path


class TopologyIndex:
    """All elements by their own names (ranges expanded), and the queries of other packages."""

    def __init__(self, sites: Sequence[Site]) -> None:
        every = write_out(sites)
        self.sites: Mapping[str, Site] = MappingProxyType({site.name: site for site in sites})
        self.domains: Mapping[str, PowerDomain] = MappingProxyType({p.part.name: p.part for p in every.domains})
        self.switches: Mapping[str, Switch] = MappingProxyType({p.part.name: p.part for p in every.switches})
        self.nodes: Mapping[str, Node] = MappingProxyType({p.part.name: p.part for p in every.nodes})
        self._site_of_node = {p.part.name: p.site for p in every.nodes}

    def switch(self, name: str) -> Switch:
        return _found(self.switches, name, kind="switch")

    def node(self, name: str) -> Node:
        return _found(self.nodes, name, kind="node")

    def site_of(self, node: str) -> Site:
        return self.sites[self._site_of_node[self.node(node).name]]

    def power_path(self, node: str) -> tuple[PowerDomain, ...]:
        upwards: list[PowerDomain] = []
        name = self.node(node).power_domain
        while name is not None:
            domain = self.domains[name]
            upwards.append(domain)
            name = domain.parent
        return tuple(reversed(upwards))

    def distance(self, node: str, other: str) -> Distance:
        """The shortest path between any NIC of one node and any of the other."""
        here, there = self.node(node), self.node(other)
        if here.name == there.name:
            return Distance.SAME_NODE
        same_site = self._site_of_node[node] == self._site_of_node[other]
        if same_site and here.scale_up_domain is not None and here.scale_up_domain == there.scale_up_domain:
            return Distance.SAME_SCALE_UP
        pairs = {
            (leaf, leaf_there, rail == rail_there)
            for rail, leaf in enumerate(here.leaves)
            for rail_there, leaf_there in enumerate(there.leaves)
        }
        return min((self._between(a, b, same_rail=same) for a, b, same in pairs), default=Distance.UNKNOWN)

    def _between(self, leaf: str, other: str, *, same_rail: bool) -> Distance:
        if leaf == other:
            return Distance.SAME_LEAF
        spines, other_spines = self.switches[leaf].uplinks, self.switches[other].uplinks
        if not set(spines).isdisjoint(other_spines):
            return Distance.SAME_RAIL if same_rail else Distance.VIA_SPINE
        cores = {core for spine in spines for core in self.switches[spine].uplinks}
        if any(not cores.isdisjoint(self.switches[spine].uplinks) for spine in other_spines):
            return Distance.VIA_CORE
        return Distance.UNKNOWN


def _found(parts: Mapping[str, PartT], name: str, *, kind: str) -> PartT:
    try:
        return parts[name]
    except KeyError:
        raise UnknownNameError(kind=kind, name=name, known=parts) from None
