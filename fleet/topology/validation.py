"""The rules between elements of a topology: unique names, valid references, no cycles, power and counts that add up.

Each rule yields (path in the document, message) per violation.  A rule runs only when the earlier rules found no
violation, so that one mistake is reported once.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from fleet.documents import MAX_PROBLEMS, Violation, dotted
from fleet.errors import nearest_names
from fleet.topology.elements import (
    Expansion,
    Node,
    PartT,
    Placed,
    PowerDomain,
    PowerKind,
    Site,
    Switch,
    Tier,
    size,
    write_out,
)

MAX_PARTS = 200_000
MAX_HINTS = 10  # finding the nearest names is slow, and the first few are enough
ROUNDING = 1e-9  # relative; sums of decimal watts are not exact in binary


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
    every: Iterable[Placed[PartT]], kind: str, place: Callable[[Placed[PartT]], str]
) -> Iterator[Violation]:
    """One violation at each place, naming the other."""
    by_name: dict[str, list[Placed[PartT]]] = defaultdict(list)
    for placed in every:
        by_name[placed.part.name].append(placed)
    for name, places in by_name.items():
        for here, other in _both_ways(places):
            yield here.path, f"{kind} {name!r} {place(here)} here, but {place(other)} at {dotted(other.path)}"


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


def references(every: Expansion) -> Iterator[Violation]:
    domains = {placed.part.name: placed for placed in every.domains}
    switches = {placed.part.name: placed for placed in every.switches}
    lookup = _Lookup()
    for domain in every.domains:
        yield from _parent(domain, domains, lookup)
    for switch in every.switches:
        yield from _uplinks(switch, switches, lookup)
    for node in every.nodes:
        yield from _node(node, domains, switches, lookup)


class _Lookup:
    """Finds an element by name, or reports why there is none; suggests nearest names a limited number of times."""

    def __init__(self) -> None:
        self._hints_left = MAX_HINTS

    def reference_error(self, name: str, known: Mapping[str, Placed[PartT]], *, kind: str, site: str) -> str | None:
        found = known.get(name)
        if found is not None and found.site == site:
            return None
        if found is not None:
            return f"{kind} {name!r} is in site {found.site!r}, expected one of site {site!r}"
        return f"no {kind} {name!r} in site {site!r}{self._hint(name, known, site)}"

    def _hint(self, name: str, known: Mapping[str, Placed[PartT]], site: str) -> str:
        if not self._hints_left:
            return ""
        self._hints_left -= 1
        nearest = nearest_names(name, (placed.part.name for placed in known.values() if placed.site == site))
        return f"; nearest: {', '.join(nearest)}" if nearest else ""


def _parent(
    domain: Placed[PowerDomain], domains: Mapping[str, Placed[PowerDomain]], lookup: _Lookup
) -> Iterator[Violation]:
    part, path = domain.part, (*domain.path, "parent")
    if part.parent is None:
        return
    if error := lookup.reference_error(part.parent, domains, kind="power domain", site=domain.site):
        yield path, error
    elif (above := domains[part.parent].part.kind).level > part.kind.level:
        allowed = ", ".join(kind for kind in PowerKind if kind.level <= part.kind.level)
        yield path, f"a {part.kind} cannot be on a {above} ({part.parent!r}), allowed: {allowed}"


def _uplinks(switch: Placed[Switch], switches: Mapping[str, Placed[Switch]], lookup: _Lookup) -> Iterator[Violation]:
    part, path = switch.part, (*switch.path, "uplinks")
    if len(set(part.uplinks)) < len(part.uplinks):
        yield path, "names a switch twice, parallel links are links_per_uplink"
    for name in dict.fromkeys(part.uplinks):
        if error := lookup.reference_error(name, switches, kind="switch", site=switch.site):
            yield path, error
        elif (tier := switches[name].part.tier).level != part.tier.level + 1:
            yield path, f"{name!r} is a {tier}, expected a {list(Tier)[part.tier.level + 1]} above a {part.tier}"


def _node(
    node: Placed[Node],
    domains: Mapping[str, Placed[PowerDomain]],
    switches: Mapping[str, Placed[Switch]],
    lookup: _Lookup,
) -> Iterator[Violation]:
    domain = node.part.power_domain
    if domain is not None and (error := lookup.reference_error(domain, domains, kind="power domain", site=node.site)):
        yield (*node.path, "power_domain"), error
    for rail, name in enumerate(node.part.leaves):
        path = (*node.path, "leaves")
        if error := lookup.reference_error(name, switches, kind="switch", site=node.site):
            yield path, error
            continue
        leaf = switches[name].part
        if leaf.tier is not Tier.LEAF:
            yield path, f"{name!r} is a {leaf.tier}, expected a leaf"
        elif leaf.rail not in (None, rail):
            yield path, f"NIC {rail} of {node.part.name!r} cannot plug into {name!r}, which serves rail {leaf.rail}"


def cycles(every: Expansion) -> Iterator[Violation]:
    parents = {placed.part.name: placed.part.parent for placed in every.domains}
    paths = {placed.part.name: placed.path for placed in every.domains}
    settled: set[str] = set()
    for placed in every.domains:
        walked: dict[str, None] = {}
        name: str | None = placed.part.name
        while name is not None and name not in settled and name not in walked:
            walked[name] = None
            name = parents[name]
        if name is not None and name in walked:
            circle = list(walked)[list(walked).index(name) :]
            yield (*paths[name], "parent"), f"is a cycle: {' > '.join((*circle, name))}"
        settled.update(walked)


def sums(every: Expansion) -> Iterator[Violation]:
    """Domains whose load exceeds their limit times the declared oversubscription.

    For every domain d with a limit, with children c and nodes n directly on it:

        sum over c of load_w(c) + sum over n of nominal_w(n)  <=  limit_w(d) * oversubscription(d)

    where load_w is the child's own limit, or, where that is not known, the load below the child.  Nodes without a
    nameplate count 0 W.  A domain with two sides (2N) must carry the whole load on one side, so its limit counts once.
    """
    below = _watts_below(every)
    for placed in every.domains:
        domain = placed.part
        if domain.limit_w is None:
            continue
        domains_w, nodes_w = below[domain.name]
        total_w, allowed_w = domains_w + nodes_w, domain.limit_w * domain.oversubscription
        if total_w > allowed_w * (1 + ROUNDING):
            message = (
                f"{domain.kind} {domain.name!r} may carry {allowed_w:,.10g} W "
                f"(limit {domain.limit_w:,.10g} W x oversubscription {domain.oversubscription:g}), "
                f"but {total_w:,.10g} W are on it (domains {domains_w:,.10g} W, nodes {nodes_w:,.10g} W); "
                f"allowed: a limit of at least {total_w / domain.oversubscription:,.10g} W, "
                f"or an oversubscription of at least {total_w / domain.limit_w:.4g}"
            )
            yield (*placed.path, "limit_w"), message


def _watts_below(every: Expansion) -> Mapping[str, tuple[float, float]]:
    """Per domain: the load of its child domains, and the nameplates of the nodes directly on it."""
    domains_w: dict[str, float] = defaultdict(float)
    nodes_w: dict[str, float] = defaultdict(float)
    for node in every.nodes:
        if node.part.power_domain is not None:
            nodes_w[node.part.power_domain] += node.part.nominal_w or 0.0
    for domain in _children_first(every):
        load_w = domain.limit_w if domain.limit_w is not None else domains_w[domain.name] + nodes_w[domain.name]
        if domain.parent is not None:
            domains_w[domain.parent] += load_w
    return {placed.part.name: (domains_w[placed.part.name], nodes_w[placed.part.name]) for placed in every.domains}


def _children_first(every: Expansion) -> Iterator[PowerDomain]:
    by_name = {placed.part.name: placed.part for placed in every.domains}
    waiting = dict.fromkeys(by_name, 0)
    for domain in by_name.values():
        if domain.parent is not None:
            waiting[domain.parent] += 1
    ready = [domain for name, domain in by_name.items() if not waiting[name]]
    while ready:
        domain = ready.pop()
        yield domain
        if domain.parent is not None:
            waiting[domain.parent] -= 1
            if not waiting[domain.parent]:
                ready.append(by_name[domain.parent])
