"""Power tree rules: no cycle, and the load below a breaker fits its limit.

For every domain d with a limit, with children c and nodes n directly on it:

    sum over c of load_w(c) + sum over n of nominal_w(n)  <=  limit_w(d) * oversubscription(d)

where load_w is the child's own limit, or, where that is not known, the load below the child.  Nodes without a nameplate
count 0 W.  A domain with two sides (2N) must carry the whole load on one side, so its limit counts once.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from fleet.documents import Violation
from fleet.topology.elements import PowerDomain
from fleet.topology.expansion import Expansion

ROUNDING = 1e-9  # relative; sums of decimal watts are not exact in binary


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
    """Domains whose load exceeds their limit times the declared oversubscription."""
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
