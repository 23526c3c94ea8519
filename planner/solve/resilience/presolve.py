"""Upper bounds on the replicas of each option in a mix cheaper than a known one.

With prices `π` of a replica's time, bucket `b` has the value `v_b = min_o π_o·a_ob`.  `n` replicas of `o` serve buckets
of value `fill_o(n)` at most, a fractional knapsack, and cost `c_o·n`, their part of their units.  Every mix that serves
all demand therefore costs

`Σ_o c_o·n_o >= Σ_b v_b + Σ_o (c_o·n_o - fill_o(n_o))`

and each term of the last sum is convex in its count.  The replicas left by a failure serve all demand too: if it takes
`D` of the `n_o`, add `c_o·min(n_o, D)` and fill only the rest.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, inf

import highspy
import numpy as np
import numpy.typing as npt

from fleet.solvers import FEASIBILITY_TOLERANCE, Limits
from planner.problem import Loss, MixProblem
from planner.solve.highs import linear_program, silent_highs
from planner.solve.single_workload.table import replicas_per_share

Floats = npt.NDArray[np.float64]
FAR = 1e9  # replaces an infinite load
MAX = 10**9  # larger counts are not considered
SCANNED = 64  # counts tested one by one
SLACK = 1e-7  # relative: rounding must not remove a count


def applies(problem: MixProblem, routes: Collection[int]) -> bool:
    """Whether only costs count, and every option has one route of its own."""
    ways = [problem.routes[r] for r in routes]
    options = {route.legs[0].option for route in ways}
    change = problem.change
    return (
        problem.objective.is_price_only
        and not problem.erring_buckets
        and change.max_started is None
        and change.max_stopped is None
        and all(len(route.legs) == 1 for route in ways)
        and len(options) == len(ways)
        and all(problem.options[o].uptime > 0 for o in options)
        and all(supply.price_usd_per_h >= 0 for supply in problem.supplies)
    )


@dataclass(frozen=True)
class BucketValues:
    """Loads `a / h` per route and bucket, prices, and the values of buckets."""

    routes: tuple[int, ...]
    options: tuple[int, ...]
    load: Floats  # route x bucket of all workloads, infinite if it cannot serve it
    cost_usd_per_h: Floats  # per replica
    per_node: npt.NDArray[np.int64]  # replicas
    node_usd_per_h: Floats
    price: Floats  # per replica, at most its cost without a limit
    stock: Floats  # replicas
    used: Floats  # replicas in the relaxation

    @cached_property
    def bucket_usd_per_h(self) -> Floats:
        """`v`."""
        return np.asarray((self.price[:, None] * np.where(np.isfinite(self.load), self.load, FAR)).min(axis=0))

    def max_replicas(self, cutoff_usd_per_h: float, lost: Mapping[int, int]) -> dict[int, int]:
        """Per option, the largest count in any mix within the cutoff."""
        slack_usd_per_h = cutoff_usd_per_h * (1 + SLACK) + SLACK - self.min_usd_per_h
        return {
            o: _largest(curve, slack=slack_usd_per_h + curve.least, lost=lost.get(o, 0))
            for o, curve in zip(self.options, self._curves, strict=True)
        }

    @cached_property
    def min_usd_per_h(self) -> float:
        """A lower bound on every mix that serves all demand on these routes."""
        return float(self.bucket_usd_per_h.sum()) + sum(curve.least for curve in self._curves)

    @cached_property
    def _curves(self) -> list["_Curve"]:
        value = self.bucket_usd_per_h
        return [_Curve.of(value, self.load[i], self.cost_usd_per_h[i], self.stock[i]) for i in range(len(self.routes))]

    def alone_usd_per_h(self) -> Floats:
        """The cost of whole nodes of one option that serves everything; prohibitive if it cannot."""
        nodes = np.ceil(np.minimum(self.load, FAR).sum(axis=1) / self.per_node - SLACK)
        return np.asarray(nodes * self.node_usd_per_h)

    def mostly_alone_usd_per_h(self) -> Floats:
        """The same without the buckets that it serves badly."""
        value = self.bucket_usd_per_h
        taken = np.minimum(self.load, 10 * value / np.maximum(self.cost_usd_per_h, SLACK)[:, None])
        return np.asarray(np.ceil(taken.sum(axis=1) / self.per_node - SLACK) * self.node_usd_per_h)


@dataclass(frozen=True, slots=True)
class _Curve:
    """`waste(n) = c·n - fill(n)`, convex, with its minimum."""

    cost: float
    loads: Floats  # cumulative over buckets, the highest gain first
    gains: Floats
    stock: float

    @classmethod
    def of(cls, value: Floats, load: Floats, cost: float, stock: float) -> "_Curve":
        able = np.flatnonzero(np.isfinite(load))
        order = able[np.argsort(-(value[able] / load[able]), kind="stable")]
        sums = np.concatenate([[0.0], np.cumsum(load[order])]), np.concatenate([[0.0], np.cumsum(value[order])])
        return cls(float(cost), *sums, stock)

    def waste(self, count: float) -> float:
        return self.cost * count - float(np.interp(count, self.loads, self.gains))

    @property
    def best(self) -> float:
        """The breakpoint with the least waste, whole or not."""
        corners = np.append(self.loads[self.loads <= self.stock], min(self.stock, self.loads[-1]))
        return float(corners[np.argmin(self.cost * corners - np.interp(corners, self.loads, self.gains))])

    @property
    def least(self) -> float:
        return self.waste(self.best)


def _largest(curve: _Curve, *, slack: float, lost: int) -> int:
    """At least the largest count whose waste fits, and mostly equal to it.

    Beyond the least waste plus `lost`, both sides of the `max` only grow.
    """

    def fits(count: int) -> bool:
        after = curve.cost * min(count, lost) + curve.waste(max(0, count - lost))
        return max(curve.waste(count), after) <= slack

    top = int(min(curve.stock, MAX))
    low, high = min(top, ceil(curve.best) + lost), top + 1
    if not fits(low):
        return next((count for count in range(low - 1, 0, -1) if fits(count)), 0) if low <= SCANNED else low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def bucket_values(problem: MixProblem, *, routes: Collection[int], limits: Limits) -> BucketValues | None:
    """From the relaxation without failures and limits; None if even that serves nothing."""
    chosen = tuple(routes)
    options = tuple(problem.routes[r].legs[0].option for r in chosen)
    load = _loads(problem, chosen)
    per_node = np.array([_per_node(problem, o) for o in options], dtype=np.int64)
    node = np.array([problem.supplies[problem.options[o].supply].price_usd_per_h for o in options])
    if not load.size or not np.isfinite(load).any(axis=0).all():
        return None
    uptime = np.array([problem.options[o].uptime for o in options])
    load = load / uptime[:, None]
    available = [problem.supplies[problem.options[o].supply].available for o in options]
    stock = np.array([inf if a is None else float(a) for a in available]) * per_node.astype(float)
    found = _relaxation(load, node / per_node, stock, limits)
    if found is None:
        return None
    return BucketValues(chosen, options, load, node / per_node, per_node, node, *found[:1], stock, found[1])


def _loads(problem: MixProblem, routes: tuple[int, ...]) -> Floats:
    blocks = []
    for w in range(len(problem.loads)):
        needed, _ = replicas_per_share(problem, w, routes)
        mine = np.array([problem.routes[r].load == w for r in routes])
        blocks.append(np.where(mine[:, None], needed, inf))
    return np.concatenate(blocks, axis=1) if blocks else np.zeros((len(routes), 0))


def _per_node(problem: MixProblem, option: int) -> int:
    replica = problem.options[option]
    return max(1, problem.supplies[replica.supply].slots // replica.slots)


def _relaxation(load: Floats, cost: Floats, stock: Floats, limits: Limits) -> tuple[Floats, Floats] | None:
    """Prices per replica and fractional counts of the cheapest replicas that carry all demand."""
    route, bucket = np.nonzero(np.isfinite(load))
    weight = load[route, bucket]
    scale = np.maximum(1.0, weight)
    shares, (routes, buckets) = len(route), load.shape
    if not np.isfinite(stock).any():
        taker = np.argmin(np.where(np.isfinite(load), cost[:, None] * np.minimum(load, FAR), inf), axis=0)
        used = np.zeros(routes)
        np.add.at(used, taker, load[taker, np.arange(buckets)])
        return cost, used
    lp = linear_program(
        [
            (np.arange(shares), bucket, 1.0 / scale),
            (np.arange(shares), buckets + route, weight / scale),
            (shares + np.arange(routes), buckets + np.arange(routes), np.full(routes, -1.0)),
        ],
        cost=np.concatenate([np.zeros(shares), cost]),
        upper=np.concatenate([np.full(shares, inf), stock]),
        row_lower=np.concatenate([np.ones(buckets), np.full(routes, -inf)]),
        row_upper=np.concatenate([np.ones(buckets), np.zeros(routes)]),
    )
    highs = silent_highs(time_limit=limits.time_limit_s, primal_feasibility_tolerance=FEASIBILITY_TOLERANCE)
    highs.passModel(lp)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    solution = highs.getSolution()
    price = np.maximum(0.0, -np.array(solution.row_dual)[buckets:])
    return price, np.array(solution.col_value)[shares:]


def undominated(problem: MixProblem, valuation: BucketValues) -> list[int]:
    """Routes that no unlimited route in the same zones dominates.

    All replicas of a dominated route could be the other's: as many, on no more nodes, and a failure takes no more.
    """
    if problem.limits or any(len(loss.lost) > 1 and not _is_zone(loss) for loss in problem.losses):
        return list(valuation.routes)
    zones = [
        frozenset(k for k, loss in enumerate(problem.losses) if loss.lost.get(o, 0) is None) for o in valuation.options
    ]
    node_lost = [max((loss.lost.get(o) or 0 for loss in problem.losses), default=0) for o in valuation.options]
    loads = [problem.routes[r].load for r in valuation.routes]
    kept: list[int] = []
    for i in np.lexsort((np.arange(len(loads)), valuation.cost_usd_per_h)):
        if not any(
            zones[j] == zones[i]
            and loads[j] == loads[i]
            and node_lost[j] <= node_lost[i]
            and valuation.per_node[j] == valuation.per_node[i]
            and valuation.stock[j] == inf
            and bool((valuation.load[j] <= valuation.load[i]).all())
            for j in kept
        ):
            kept.append(int(i))
    return [valuation.routes[i] for i in sorted(kept)]


def _is_zone(loss: Loss) -> bool:
    return all(count is None for count in loss.lost.values())


def simple_mix(valuation: BucketValues, *, zones: Collection[Collection[int]]) -> dict[int, int] | None:
    """Replicas of the cheapest mix of one or two options that each serve everything, and so mostly survive."""
    nodes = np.ceil(np.minimum(valuation.load, FAR).sum(axis=1) / valuation.per_node - SLACK)
    nodes = np.where(np.isfinite(valuation.load).all(axis=1), nodes, FAR)
    stock = np.minimum(valuation.stock / valuation.per_node, FAR - 1)
    struck = np.array([any(o in zone for zone in zones) for o in valuation.options])
    alone = np.where((nodes + 1 <= stock) & ~struck, (nodes + 1) * valuation.node_usd_per_h, np.inf)
    found: list[tuple[float, dict[int, float]]] = []
    if np.isfinite(alone).any():
        best = int(np.argmin(alone))
        found.append((float(alone[best]), {best: nodes[best] + 1}))
    costs = nodes * valuation.node_usd_per_h
    able = sorted((int(i) for i in np.flatnonzero(nodes <= stock)), key=lambda i: float(costs[i]))
    for i in able:
        other = next((j for j in able if j != i and _apart(valuation.options[i], valuation.options[j], zones)), None)
        if other is not None:
            found.append((float(costs[i] + costs[other]), {i: nodes[i], other: nodes[other]}))
    if not found:
        return None
    _, counts = min(found, key=lambda mix: mix[0])
    return {valuation.options[i]: int(count * valuation.per_node[i]) for i, count in counts.items()}


def _apart(one: int, other: int, zones: Collection[Collection[int]]) -> bool:
    return not any(one in zone and other in zone for zone in zones)


@dataclass(frozen=True)
class ScenarioValues:
    """Bucket values without a zone, or without any loss."""

    zone: frozenset[int]  # options
    valuation: BucketValues


def scenario_values(problem: MixProblem, *, routes: Collection[int], limits: Limits) -> list[ScenarioValues]:
    """Without any loss first, then without each zone; empty if the demand cannot be served before a failure."""
    whole = bucket_values(problem, routes=routes, limits=limits)
    if whole is None:
        return []
    views = [ScenarioValues(frozenset(), whole)]
    for loss in problem.losses:
        zone = frozenset(o for o, count in loss.lost.items() if count is None)
        if zone:
            left = [r for r in routes if problem.routes[r].legs[0].option not in zone]
            valuation = bucket_values(problem, routes=left, limits=limits)
            views += [] if valuation is None else [ScenarioValues(zone, valuation)]
    return views


def candidates(views: Sequence[ScenarioValues], *, max_count: int) -> list[int]:
    """Routes of likely good mixes."""
    valuation = views[0].valuation
    whole, part = valuation.alone_usd_per_h(), valuation.mostly_alone_usd_per_h()
    chosen = set(np.argsort(part, kind="stable")[:max_count].tolist())
    for view in views:
        used = {o for o, count in zip(view.valuation.options, view.valuation.used, strict=True) if count > SLACK}
        chosen |= {i for i, o in enumerate(valuation.options) if o in used}
        outside = [i for i, o in enumerate(valuation.options) if o not in view.zone]
        chosen |= set(sorted(outside, key=lambda i: part[i])[: ceil(max_count / 2)])
        chosen |= set(sorted(outside, key=lambda i: whole[i])[:2])
    return [valuation.routes[i] for i in sorted(chosen)]


def max_replicas(
    views: Sequence[ScenarioValues], *, cutoff_usd_per_h: float, lost: Mapping[int, int]
) -> dict[int, int]:
    """Per option, the largest count in any mix within the cutoff."""
    whole = views[0].valuation
    most = whole.max_replicas(cutoff_usd_per_h, lost)
    cost = dict(zip(whole.options, whole.cost_usd_per_h, strict=True))
    for view in views[1:]:
        bounded = view.valuation.max_replicas(cutoff_usd_per_h, {})  # one failure at a time
        left_usd_per_h = cutoff_usd_per_h * (1 + SLACK) + SLACK - view.valuation.min_usd_per_h
        for o in view.zone:
            if o in most:
                bounded[o] = MAX if cost[o] <= 0 else floor(min(MAX, max(0.0, left_usd_per_h) / cost[o]))
        most = {o: min(count, bounded.get(o, count)) for o, count in most.items()}
    return most


def prices_in(view: ScenarioValues, whole: BucketValues) -> Floats:
    """Prices per replica of every option; prohibitive in the zone."""
    prices = dict(zip(view.valuation.options, view.valuation.price, strict=True))
    value = view.valuation.bucket_usd_per_h
    return np.array(
        [
            prices[o] if o in prices else float((value / load).max(initial=0.0))
            for o, load in zip(whole.options, whole.load, strict=True)
        ]
    )
