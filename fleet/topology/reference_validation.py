"""Reference rules: every reference names an element of the right kind in the same site."""

from collections.abc import Iterator, Mapping

from fleet.documents import Violation
from fleet.errors import nearest_names
from fleet.topology.elements import Node, PowerDomain, PowerKind, Switch, Tier
from fleet.topology.expansion import Expansion, PartT, Placed

MAX_HINTS = 10  # finding the nearest names is slow, and the first few are enough


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

    def why_not(self, name: str, known: Mapping[str, Placed[PartT]], *, what: str, site: str) -> str | None:
        found = known.get(name)
        if found is not None and found.site == site:
            return None
        if found is not None:
            return f"{what} {name!r} is in site {found.site!r}, expected one of site {site!r}"
        return f"no {what} {name!r} in site {site!r}{self._hint(name, known, site)}"

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
    if why := lookup.why_not(part.parent, domains, what="power domain", site=domain.site):
        yield path, why
    elif (above := domains[part.parent].part.kind).level > part.kind.level:
        allowed = ", ".join(kind for kind in PowerKind if kind.level <= part.kind.level)
        yield path, f"a {part.kind} cannot be on a {above} ({part.parent!r}), allowed: {allowed}"


def _uplinks(switch: Placed[Switch], switches: Mapping[str, Placed[Switch]], lookup: _Lookup) -> Iterator[Violation]:
    part, path = switch.part, (*switch.path, "uplinks")
    if len(set(part.uplinks)) < len(part.uplinks):
        yield path, "names a switch twice, parallel links are links_per_uplink"
    for name in dict.fromkeys(part.uplinks):
        if why := lookup.why_not(name, switches, what="switch", site=switch.site):
            yield path, why
        elif (tier := switches[name].part.tier).level != part.tier.level + 1:
            yield path, f"{name!r} is a {tier}, expected a {list(Tier)[part.tier.level + 1]} above a {part.tier}"


def _node(
    node: Placed[Node],
    domains: Mapping[str, Placed[PowerDomain]],
    switches: Mapping[str, Placed[Switch]],
    lookup: _Lookup,
) -> Iterator[Violation]:
    domain = node.part.power_domain
    if domain is not None and (why := lookup.why_not(domain, domains, what="power domain", site=node.site)):
        yield (*node.path, "power_domain"), why
    for rail, name in enumerate(node.part.leaves):
        path = (*node.path, "leaves")
        if why := lookup.why_not(name, switches, what="switch", site=node.site):
            yield path, why
            continue
        leaf = switches[name].part
        if leaf.tier is not Tier.LEAF:
            yield path, f"{name!r} is a {leaf.tier}, expected a leaf"
        elif leaf.rail not in (None, rail):
            yield path, f"NIC {rail} of {node.part.name!r} cannot plug into {name!r}, which serves rail {leaf.rail}"
