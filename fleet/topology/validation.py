"""The rules between elements of a topology: unique names, valid references, no cycles, power and counts that add up.

Each rule yields (path in the document, message) per violation.  A rule runs only when the earlier rules found no
violation, so that one mistake is reported once.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from fleet.documents import MAX_PROBLEMS, Violation, dotted
from fleet.topology.elements import Node, PowerDomain, Site
from fleet.topology.expansion import Expansion, PartT, Placed, size, write_out
from fleet.topology.power_validation import cycles, sums
from fleet.topology.reference_validation import references

MAX_PARTS = 200_000


def violations(sites: Sequence[Site]) -> Iterator[Violation]:
    """The violations of the first broken rule."""
    if (parts := size(sites)) > MAX_PARTS:
        yield ("sites",), f"has {parts:,} domains, switches and nodes, allowed: at most {MAX_PARTS:,}"
        return
    if twice := list(_sites_listed_twice(sites)):
        yield from twice
        return
    written_out = write_out(sites)
    for rule in (_parts_listed_twice, references, cycles, sums):
        if found := list(islice(rule(written_out), MAX_PROBLEMS)):
            yield from found
            return
    yield from _totals(sites, written_out)


def _sites_listed_twice(sites: Sequence[Site]) -> Iterator[Violation]:
    first: dict[str, int] = {}
    for index, site in enumerate(sites):
        if (earlier := first.setdefault(site.name, index)) != index:
            yield ("sites", index, "name"), f"site {site.name!r} is already sites[{earlier}]"


def _parts_listed_twice(every: Expansion) -> Iterator[Violation]:
    kinds = {placed.part.name: placed.part.kind for placed in every.domains}

    def domain_place(placed: Placed[PowerDomain]) -> str:
        return f"is on {placed.part.parent}" if placed.part.parent else f"is a feed of site {placed.site}"

    def node_place(placed: Placed[Node]) -> str:
        domain = placed.part.power_domain
        return f"is in {kinds.get(domain, 'power domain')} {domain}" if domain else f"is in site {placed.site}"

    yield from _listed_twice(every.domains, "power domain", domain_place)
    yield from _listed_twice(every.switches, "switch", lambda placed: f"is listed in site {placed.site}")
    yield from _listed_twice(every.nodes, "node", node_place)


def _listed_twice(
    every: Iterable[Placed[PartT]], what: str, place: Callable[[Placed[PartT]], str]
) -> Iterator[Violation]:
    """One violation at each place, naming the other."""
    by_name: dict[str, list[Placed[PartT]]] = defaultdict(list)
    for placed in every:
        by_name[placed.part.name].append(placed)
    for name, places in by_name.items():
        for here, other in _both_ways(places):
            yield here.path, f"{what} {name!r} {place(here)} here, but {place(other)} at {dotted(other.path)}"


def _both_ways(places: Sequence[Placed[PartT]]) -> Iterator[tuple[Placed[PartT], Placed[PartT]]]:
    """The first place against the second, and every later one against the first."""
    for later in places[1:]:
        if later is places[1]:
            yield places[0], later
        yield later, places[0]


def _totals(sites: Sequence[Site], every: Expansion) -> Iterator[Violation]:
    nodes = Counter(placed.site for placed in every.nodes)
    gpus: Counter[str] = Counter()
    for placed in every.nodes:
        gpus[placed.site] += placed.part.gpus
    for index, site in enumerate(sites):
        if site.total_nodes not in (None, nodes[site.name]):
            yield ("sites", index, "total_nodes"), f"is {site.total_nodes}, but {nodes[site.name]} nodes are listed"
        if site.total_gpus not in (None, gpus[site.name]):
            yield ("sites", index, "total_gpus"), f"is {site.total_gpus}, but the nodes listed hold {gpus[site.name]}"
