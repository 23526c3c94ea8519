"""Conversion of a topology to the feeds of a power tree."""

from collections.abc import Mapping

from fleet.errors import UnknownNameError
from fleet.topology import Site, Topology
from power.tree.elements import BudgetsW, Feed


def feeds_of(
    topology: Topology, *, site: str | None = None, budgets_w: Mapping[str, BudgetsW] | None = None
) -> tuple[Feed, ...]:
    """Return the power domains of a site, or of the only one, with budgets by the name they are written under."""
    chosen = _site(topology, site)
    given = dict(budgets_w or {})
    names = [domain.name for domain in chosen.power]
    for name in given:
        if name not in names:
            raise UnknownNameError(kind="power domain", name=name, known=names)
    return tuple(Feed(**domain.model_dump(), budget_w=given.get(domain.name)) for domain in chosen.power)


def _site(topology: Topology, name: str | None) -> Site:
    if name is None and len(topology.sites) == 1:
        return topology.sites[0]
    for site in topology.sites:
        if site.name == name:
            return site
    raise UnknownNameError(kind="site", name=name or "", known=[site.name for site in topology.sites])
