"""Budgets of feeds that stay safe even if every child draws its full budget.

Top down, a feed's budget is split into `mean_i + s * spread_i` per child, with the one `s >= 0` at which they add up to
the budget; no child gets more than its own limit.  Every child is then equally likely to reach its budget.
"""

from collections.abc import Mapping, Sequence
from math import inf, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleet.documents import Frozen
from power.caps.power_model import Draw
from power.caps.result import CapPlan
from power.tree.document import PowerTree
from power.tree.hierarchy import Hierarchy

SECONDS_PER_H = 3600.0
MIN_SPREAD = 1e-3  # share of the mean that weighs like a spread, so that a remainder is distributed
HALVINGS = 60
MAX_SIGMAS = 1e12


class DomainBudget(Frozen):
    """The budget of a feed in an interval.  A guard without a budget in force falls back by itself."""

    domain: str
    limit_w: float
    one_side_limit_w: float | None  # the same once a side of a feed at or above it is lost
    valid_from_s: float
    expires_at_s: float


class Needs(NamedTuple):
    """The power under each child of a feed, and the child's limit."""

    mean_w: float
    spread_w: float
    limit_w: float


def domain_budgets(
    tree: PowerTree, plan: CapPlan, *, starts_at_s: float, grace_s: float = 0.0
) -> tuple[DomainBudget, ...]:
    """Return the budget of every feed and period; empty for a plan without a choice."""
    if not plan.status.has_mix:
        return ()
    step_s = tree.period_h * SECONDS_PER_H
    return tuple(
        DomainBudget(
            domain=feed.name,
            limit_w=feed.budget_w,
            one_side_limit_w=feed.lost_budget_w,
            valid_from_s=starts_at_s + period.period * step_s,
            expires_at_s=starts_at_s + (period.period + 1) * step_s + grace_s,
        )
        for period in plan.periods
        for feed in period.feeds
        if feed.budget_w is not None
    )


def firm(hierarchy: Hierarchy, draws: Sequence[Draw], limits: Mapping[str, float | None]) -> dict[str, float]:
    """Return the limit of each feed; infinite if neither it nor a feed above has a limit."""
    needs = {name: _needs(draws, members, limits.get(name)) for name, members in hierarchy.below.items()}
    found: dict[str, float] = {}
    for name in hierarchy.top_down():
        if hierarchy.feeds[name].parent is None:
            found[name] = needs[name].limit_w
        children = hierarchy.children[name]
        if not children:
            continue
        direct = [g for g in hierarchy.below[name] if hierarchy.classes[g].feed == name]
        shares = split(found[name], [*(needs[child] for child in children), _needs(draws, direct, None)])
        found.update(zip(children, shares, strict=False))
    return found


def split(budget_w: float, needs: Sequence[Needs]) -> list[float]:
    """Return shares of a budget that add up to the budget, or to all that the children can use."""
    means, spreads, limits = (np.array(column, dtype=np.float64) for column in zip(*needs, strict=True))
    if limits.sum() <= budget_w:
        return [float(limit) for limit in limits]
    spreads = np.maximum(spreads, MIN_SPREAD * (means + 1.0))

    def at(sigmas: float) -> npt.NDArray[np.float64]:
        return np.minimum(limits, means + sigmas * spreads)

    low, high = 0.0, 1.0
    while at(high).sum() < budget_w and high < MAX_SIGMAS:
        high *= 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle).sum() <= budget_w else (low, middle)
    shares = at(low)
    total_w = float(shares.sum())
    return [float(share) for share in (shares * budget_w / total_w if total_w > budget_w else shares)]


def touching(budget_w: float, mean_w: float, spread_w: float) -> float:
    """Return the chance of drawing more than a budget at a moment."""
    if spread_w <= 0:
        return float(mean_w > budget_w)
    return 1 - NormalDist().cdf((budget_w - mean_w) / spread_w)


def spread_w(draws: Sequence[Draw]) -> float:
    """Return the standard deviation of a sum of draws."""
    return sqrt(sum(draw.own_w**2 for draw in draws) + sum(draw.common_w for draw in draws) ** 2)


def _needs(draws: Sequence[Draw], members: Sequence[int], limit_w: float | None) -> Needs:
    mine = [draws[g] for g in members]
    return Needs(sum(draw.mean_w for draw in mine), spread_w(mine), inf if limit_w is None else limit_w)
