"""The job's rings as flows between the NICs of a topology."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from faults.path_planning.clos import Clos, clos_of
from faults.path_planning.job import TrafficJob
from fleet.documents import RuleError, Violation
from fleet.topology import Node, TopologyIndex
from fleet.topology.hostlist import expand_all


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC and its ports: the switch of each port, and the capacity of one port per direction."""

    name: str  # node:nic
    leaves: tuple[int, ...]
    port_gb_per_s: float
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    ring: int
    source: int  # NICs, by number
    target: int
    gb_per_s: float


@dataclass(frozen=True)
class Traffic:
    job: TrafficJob
    clos: Clos
    nics: tuple[Nic, ...]
    rings: tuple[str, ...]
    flows: tuple[Flow, ...]

    def on(self, clos: Clos) -> "Traffic":
        return Traffic(self.job, clos, self.nics, self.rings, self.flows)

    def ports(self, flow: Flow) -> int:
        """Return the smallest number of connections with equal load on all ports of both NICs."""
        return math.lcm(len(self.nics[flow.source].leaves), len(self.nics[flow.target].leaves))

    def port_pairs(self, flow: Flow) -> list[tuple[int, int]]:
        """Return the leaves of each of that many connections: port i of one side to port i of the other."""
        out, into = self.nics[flow.source].leaves, self.nics[flow.target].leaves
        return [(out[index % len(out)], into[index % len(into)]) for index in range(self.ports(flow))]


def traffic_of(job: TrafficJob, index: TopologyIndex) -> Traffic:
    """Return the flows of a job; raise RuleError with the job's field that does not match the topology."""
    if not index.switches:
        raise RuleError([(("rings",), "the topology has no switches (network), so there are no paths to choose")])
    rings = dict(_rings(job, index))
    used = dict.fromkeys(member for members in rings.values() for member in members)
    RuleError.raise_for(_violations(job, index, used))
    clos = clos_of(index, dead=job.dead)
    nics = tuple(_nic(job, index, clos, member) for member in used)
    number = {nic.name: place for place, nic in enumerate(nics)}
    flows = tuple(
        Flow(place, number[one], number[other], _demand(job, nics[number[one]]))
        for place, members in enumerate(rings.values())
        for one, other in zip(members, (*members[1:], members[0]), strict=True)
        if one.partition(":")[0] != other.partition(":")[0]  # traffic inside a node does not use the network
    )
    if job.both_ways:
        flows += tuple(Flow(flow.ring, flow.target, flow.source, flow.gb_per_s) for flow in flows)
    return Traffic(job, clos, nics, tuple(rings), flows)


def nic_ports(job: TrafficJob, node: Node) -> tuple[tuple[int, ...], ...]:
    """Return the positions in a node's leaves that are the ports of each of its NICs."""
    bonded = {position: bond for bond in job.bonds for position in bond}
    each = dict.fromkeys(bonded.get(position, (position,)) for position in range(len(node.leaves)))
    return tuple(each)


def _rings(job: TrafficJob, index: TopologyIndex) -> Iterator[tuple[str, tuple[str, ...]]]:
    for ring in job.rings:
        yield ring.name, tuple(_full(member) for member in ring.members)
    for group in job.groups:
        nodes = expand_all(group.nodes)
        first = index.nodes.get(nodes[0])
        nics = group.nics
        if nics is None:
            nics = tuple(range(0 if first is None else len(nic_ports(job, first)))) or (0,)
        for nic in nics:
            yield f"{group.name}.{nic}", tuple(f"{node}:{nic}" for node in nodes)


def _full(member: str) -> str:
    return member if ":" in member else f"{member}:0"


def _violations(job: TrafficJob, index: TopologyIndex, members: Mapping[str, None]) -> Iterator[Violation]:
    sites: dict[str, str] = {}
    for member in members:
        name, _, nic = member.partition(":")
        node = index.nodes.get(name)
        if node is None:
            yield ("rings",), f"{member}: the topology has no node {name!r}"
            continue
        sites.setdefault(index.site_of(name).name, name)
        ports = nic_ports(job, node)
        if int(nic) >= len(ports):
            yield ("rings",), f"{member}: {name} has {len(ports)} NICs in the topology (its leaves)"
        elif max(ports[int(nic)]) >= len(node.leaves):
            yield ("bonds",), f"{name} has no leaf at position {max(ports[int(nic)])}"
        if node.nic_gb_per_s is None:
            yield ("rings",), f"{member}: the topology does not give nic_gb_per_s of {name}"
        elif job.gb_per_s is not None and int(nic) < len(ports):
            most = node.nic_gb_per_s * len(ports[int(nic)])
            if job.gb_per_s > most:
                yield ("gb_per_s",), f"must be at most the capacity of a NIC of {name}, {most:g}"
    if len(sites) > 1:
        yield ("rings",), f"the job spans sites {', '.join(sorted(sites))}, expected nodes of one site"


def _nic(job: TrafficJob, index: TopologyIndex, clos: Clos, member: str) -> Nic:
    name, _, nic = member.partition(":")
    node = index.nodes[name]
    leaves = tuple(clos.number[node.leaves[position]] for position in nic_ports(job, node)[int(nic)])
    address = job.addresses.get(member) or (job.addresses.get(name) if nic == "0" else None)
    return Nic(member, leaves, node.nic_gb_per_s or 0.0, None if address is None else str(address))


def _demand(job: TrafficJob, nic: Nic) -> float:
    return job.gb_per_s if job.gb_per_s is not None else job.nic_share * nic.port_gb_per_s * len(nic.leaves)
