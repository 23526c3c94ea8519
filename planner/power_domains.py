"""Power domains from the feeds of a power tree.

The planner counts replicas at a power that nine of ten models stay under.  A feed carries more of them than its limit
suggests, because not all replicas peak at once and clocks may be lowered; `power.caps.effective_limits` has the limits.
"""

from collections.abc import Iterator, Mapping, Sequence

from fleet.documents import RuleError, Violation
from fleet.errors import nearest_names
from planner.policy import PowerDomainLimit
from power.caps import Terms, effective_limits, feed_headroom
from power.tree import PowerTree

Members = Mapping[str, Sequence[str]]  # feed -> its members: offer ids, or workload/option


def power_domains(
    tree: PowerTree, *, members: Members | None = None, terms: Terms | None = None
) -> tuple[PowerDomainLimit, ...]:
    """The feeds of a tree that limit the plan, each with the members of itself and of the feeds below it.

    A feed with servers in the tree has its effective limit, any other feed its own limit.  `members` may be absent if
    the feeds form a chain, so that all of them carry everything.
    """
    RuleError.raise_for(_member_violations(tree, members))
    hierarchy = tree.hierarchy
    known = effective_limits(tree, feed_headroom(tree, terms=terms))
    members_of: dict[str, dict[str, None]] = {}
    for feed, names in (members or {}).items():
        for above in hierarchy.upwards(feed):
            members_of.setdefault(above, {}).update(dict.fromkeys(names))
    domains = []
    for name in hierarchy.top_down():
        limit_w = known.get(name, _min_w(tree, name))
        if limit_w is not None and (members is None or name in members_of):
            inside = None if members is None else tuple(members_of[name])
            domains.append(PowerDomainLimit(name=name, limit_w=limit_w, members=inside))
    return tuple(domains)


def _min_w(tree: PowerTree, feed: str) -> float | None:
    """The lowest limit of a feed in any period."""
    known = [tree.hierarchy.feeds[feed].may_draw_w(period) for period in range(tree.periods)]
    return min((w for w in known if w is not None), default=None)


def _member_violations(tree: PowerTree, members: Members | None) -> Iterator[Violation]:
    hierarchy = tree.hierarchy
    if members is None:
        if len(hierarchy.feeds) > max(len(list(hierarchy.upwards(feed))) for feed in hierarchy.feeds):
            some = ", ".join(list(hierarchy.feeds)[:3])
            yield ("members",), f"must name the offers of each feed, because feeds are parallel: {some}, ..."
        return
    for feed, names in members.items():
        if not names:
            yield ("members", feed), "must name at least one offer, or workload/option"
        if feed not in hierarchy.feeds:
            nearest = ", ".join(nearest_names(feed, hierarchy.feeds)) or ", ".join(list(hierarchy.feeds)[:5])
            yield ("members", feed), f"unknown feed of tree {tree.name!r}; nearest: {nearest}"
