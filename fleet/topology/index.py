"""A topology ready to be asked: what feeds a node, what hangs on a domain, how far two nodes are apart.

Built once from a sound topology; every question is then a lookup or a walk along one branch.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import TypeVar

from fleet.errors import UnknownNameError
from fleet.topology.elements import Node, PowerDomain, Site, Switch
from fleet.topology.expansion import write_out

PartT = TypeVar("PartT")


class Distance(IntEnum):
    """How traffic gets from one NIC to another, nearest first."""

    SAME_NODE = 0
    SAME_SCALE_UP = 1  # another node of one NVLink or xGMI fabric
    SAME_LEAF = 2  # one switch between them
    SAME_RAIL = 3  # leaf, spine, leaf, all of one rail
    VIA_SPINE = 4  # leaf, spine, leaf of another rail
    VIA_CORE = 5
    UNKNOWN = 6  # no path is written down


class TopologyIndex:
    """All parts by their own names (ranges written out), and the questions other rooms ask."""

    def __init__(self, sites: Sequence[Site]) -> None:
        every = write_out(sites)
        self.sites: Mapping[str, Site] = MappingProxyType({site.name: site for site in sites})
        self.domains: Mapping[str, PowerDomain] = MappingProxyType({p.part.name: p.part for p in every.domains})
        self.switches: Mapping[str, Switch] = MappingProxyType({p.part.name: p.part for p in every.switches})
        self.nodes: Mapping[str, Node] = MappingProxyType({p.part.name: p.part for p in every.nodes})
        self._site_of_node = {p.part.name: p.site for p in every.nodes}
        self._children: dict[str, list[PowerDomain]] = defaultdict(list)
        self._nodes_in: dict[str, list[Node]] = defaultdict(list)
        self._nodes_on: dict[str, list[Node]] = defaultdict(list)
        for domain in self.domains.values():
            if domain.parent is not None:
                self._children[domain.parent].append(domain)
        for node in self.nodes.values():
            if node.power_domain is not None:
                self._nodes_in[node.power_domain].append(node)
            for leaf in dict.fromkeys(node.leaves):
                self._nodes_on[leaf].append(node)

    def site(self, name: str) -> Site:
        return _found(self.sites, name, kind="site")

    def domain(self, name: str) -> PowerDomain:
        return _found(self.domains, name, kind="power domain")

    def switch(self, name: str) -> Switch:
        return _found(self.switches, name, kind="switch")

    def node(self, name: str) -> Node:
        return _found(self.nodes, name, kind="node")

    def site_of(self, node: str) -> Site:
        """The site a node stands in."""
        return self.sites[self._site_of_node[self.node(node).name]]

    def power_path(self, node: str) -> tuple[PowerDomain, ...]:
        """The domains that feed a node, from the feed down to its rack; empty when that is not known."""
        upwards: list[PowerDomain] = []
        name = self.node(node).power_domain
        while name is not None:
            domain = self.domains[name]
            upwards.append(domain)
            name = domain.parent
        return tuple(reversed(upwards))

    def domains_on(self, domain: str) -> tuple[PowerDomain, ...]:
        """The domains that hang directly on one."""
        return tuple(self._children.get(self.domain(domain).name, ()))

    def nodes_under(self, domain: str) -> tuple[Node, ...]:
        """Every node a domain feeds, directly or through others."""
        return tuple(node for name in self._subtree(self.domain(domain).name) for node in self._nodes_in.get(name, ()))

    def leaves_of(self, node: str) -> tuple[Switch, ...]:
        """The leaf of each rail of a node, in the order of rails."""
        return tuple(self.switches[name] for name in self.node(node).leaves)

    def nodes_on(self, leaf: str) -> tuple[Node, ...]:
        """The nodes with at least one NIC in a leaf."""
        return tuple(self._nodes_on.get(self.switch(leaf).name, ()))

    def distance(self, node: str, other: str) -> Distance:
        """The shortest way between any NIC of one node and any of the other."""
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

    def rail_distance(self, node: str, other: str, *, rail: int, other_rail: int) -> Distance:
        """The way from one NIC of a node to one of another, staying on the switched network."""
        here, there = self._leaf(node, rail), self._leaf(other, other_rail)
        if node == other and rail == other_rail:
            return Distance.SAME_NODE
        return self._between(here, there, same_rail=rail == other_rail)

    def gpu_counts(self) -> Mapping[str, int]:
        """How many GPUs of each known type there are."""
        counts: Counter[str] = Counter()
        for node in self.nodes.values():
            if node.gpu is not None:
                counts[node.gpu] += node.gpus
        return counts

    def _subtree(self, name: str) -> Iterator[str]:
        waiting = [name]
        while waiting:
            yield (here := waiting.pop())
            waiting += [child.name for child in reversed(self._children.get(here, ()))]

    def _leaf(self, node: str, rail: int) -> str:
        leaves = self.node(node).leaves
        if not 0 <= rail < len(leaves):
            raise UnknownNameError(kind=f"rail of {node}", name=str(rail), known=map(str, range(len(leaves))))
        return leaves[rail]

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
