"""Effective limits of feeds for the planner, which counts servers by nameplate (docs/explanation/power/caps.md,
section 7).

    effective limit = nameplates of the servers on the feed + of those that may be added at the risk

The effective limit exceeds the limit because peaks do not coincide and, with caps, because clocks may go down.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.documents import Frozen
from power.caps.headroom import FeedHeadroom
from power.caps.result import CapPlan
from power.tree.document import PowerTree
from power.tree.elements import ServerGroup
from power.tree.hierarchy import ServerClass
from power.tree.validation import nameplate_w


class EffectiveLimit(Frozen):
    """The effective limit of one feed."""

    feed: str
    limit_w: float  # effective: the limit of the sum of nameplates
    carried_w: float | None  # the least that it may draw in any period
    servers: int  # that this limit counts


@dataclass(frozen=True)
class _Mix:
    """The mixture of servers under a feed."""

    servers: int
    nameplate_w: float


def effective_limits(
    tree: PowerTree, headrooms: Iterable[FeedHeadroom], *, capped: bool = True, conservative: bool = True
) -> tuple[EffectiveLimit, ...]:
    """Return the limit of every feed that limits anything; `conservative` takes the low end of the interval."""
    found = []
    for one in headrooms:
        growth = one.capped if capped else one.uncapped
        if growth.limited_by is None:
            continue
        mix = _mix(tree, one.feed)
        added = growth.servers.low if conservative else growth.servers.mid
        servers = max(0, int(mix.servers + added))
        limits = [tree.hierarchy.feeds[one.feed].may_draw_w(period) for period in range(tree.periods)]
        found.append(
            EffectiveLimit(
                feed=one.feed,
                limit_w=mix.nameplate_w / mix.servers * servers,
                carried_w=min((w for w in limits if w is not None), default=None),
                servers=servers,
            )
        )
    return tuple(found)


def reweighted(tree: PowerTree, plan: CapPlan, usd_per_kw_h: Mapping[str, float]) -> PowerTree:
    """Return the tree with losses in $/h, using the planner's price of a kW.

    On a feed where a kW saves the planner so many $/h and this plan so many servers' slack, a server's slack is
    worth the ratio.  The weights of the classes on the feed are multiplied by the ratio.  A class under several such
    feeds takes the highest, one under none takes the mean of the others, so that a price moves power and no priority is
    lost.
    """
    worth = _usd_per_loss(plan, usd_per_kw_h)
    if not worth:
        return tree
    mean = sum(worth.values()) / len(worth)
    by_group: dict[str, float] = {}
    for one in tree.hierarchy.classes:
        mine = max((worth[name] for name in one.feeds if name in worth), default=mean)
        by_group[one.group.name] = max(by_group.get(one.group.name, 0.0), mine)
    groups = tuple(_weighted(group, by_group[group.name]) for group in tree.groups)
    fields = {name: getattr(tree, name) for name in PowerTree.model_fields}
    return PowerTree(**{**fields, "groups": groups})  # a copy would keep cached properties


def _usd_per_loss(plan: CapPlan, usd_per_kw_h: Mapping[str, float]) -> dict[str, float]:
    """Return, by feed, the planner's price of a kW over this plan's, each as a mean over the day."""
    found = {}
    for feed, usd in usd_per_kw_h.items():
        loss = sum(period.loss_per_kw(feed) for period in plan.periods) / len(plan.periods)
        if usd > 0 and loss > 0:
            found[feed] = usd / loss
    return found


def _weighted(group: ServerGroup, factor: float) -> ServerGroup:
    return group.model_copy(update={"weight": min(1e6, group.weight * factor)})


def _mix(tree: PowerTree, feed: str) -> _Mix:
    hierarchy = tree.hierarchy
    classes: list[ServerClass] = [hierarchy.classes[g] for g in hierarchy.below[feed]]
    watts = sum(nameplate_w(one.group, one.model) * one.group.count for one in classes)
    return _Mix(sum(one.group.count for one in classes), watts)
