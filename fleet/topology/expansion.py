"""Expands ranges: every power domain, switch and node of a site by its own name, with its place in the document."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fleet.documents import Path
from fleet.topology.elements import Node, PowerDomain, Site, Switch
from fleet.topology.hostlist import count, expand, expand_all

PartT = TypeVar("PartT", PowerDomain, Switch, Node)


@dataclass(frozen=True, slots=True)
class Placed(Generic[PartT]):
    """One element, the name of its site, and its path in the document."""

    part: PartT
    site: str
    path: Path


@dataclass(frozen=True, slots=True)
class Expansion:
    domains: tuple[Placed[PowerDomain], ...]
    switches: tuple[Placed[Switch], ...]
    nodes: tuple[Placed[Node], ...]


def size(sites: Sequence[Site]) -> int:
    series = (
        series
        for site in sites
        for series in (*(p.name for p in site.power), *(s.name for s in site.network), *(n.name for n in site.nodes))
    )
    return sum(map(count, series))


def write_out(sites: Sequence[Site]) -> Expansion:
    return Expansion(tuple(_domains(sites)), tuple(_switches(sites)), tuple(_nodes(sites)))


def _domains(sites: Sequence[Site]) -> Iterator[Placed[PowerDomain]]:
    for index, site in enumerate(sites):
        for position, domain in enumerate(site.power):
            for name in expand(domain.name):
                part = domain.model_copy(update={"name": name})
                yield Placed(part, site.name, ("sites", index, "power", position))


def _switches(sites: Sequence[Site]) -> Iterator[Placed[Switch]]:
    for index, site in enumerate(sites):
        for position, switch in enumerate(site.network):
            uplinks = expand_all(switch.uplinks)
            for name in expand(switch.name):
                part = switch.model_copy(update={"name": name, "uplinks": uplinks})
                yield Placed(part, site.name, ("sites", index, "network", position))


def _nodes(sites: Sequence[Site]) -> Iterator[Placed[Node]]:
    for index, site in enumerate(sites):
        for position, node in enumerate(site.nodes):
            leaves = expand_all(node.leaves)
            for name in expand(node.name):
                part = node.model_copy(update={"name": name, "leaves": leaves})
                yield Placed(part, site.name, ("sites", index, "nodes", position))
