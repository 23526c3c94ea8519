"""One workload of a mix problem as arrays, and reductions that keep its optimum.

A `Table` is P1 of docs/explanation/planner/formulation.md for one workload with objective `cost`, one-legged routes, no
free units, and no supply shared by two options.  A unit of a supply then holds replicas of one option, so `units[o, b]`
is the number of units that bucket `b` needs if option `o` serves all of it; infinite if it cannot.

- Options with the same table form a class, whose cheapest offers are hired first.  Offers of a class that are dearer
  than its cheapest unlimited one are removed.
- A class is dominated by one that needs no more units for any bucket and has an unlimited offer at no higher a price
  than the dominated one's cheapest.
- Buckets with proportional columns are merged: their shares load every option in the same proportion.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, inf

import numpy as np
import numpy.typing as npt

from planner.problem import MIN_BUSY_REPLICAS, MixProblem

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

PRICE_GRID = 10_000  # prices are multiples of a hundredth of a cent; finer ones have no common step
CAPACITY_TOLERANCE = 1e-9  # relative: a load of 0.1 + 0.2 fits a capacity of 0.3


@dataclass(frozen=True)
class Table:
    units: Floats  # (option, bucket): units per share
    price_usd_per_h: Floats  # per unit
    stock: Floats  # units, infinite without a limit
    routes: Indices  # the problem's index of each option's route
    buckets: Indices  # the load's index of each bucket

    @cached_property
    def step_usd_per_h(self) -> float:
        """The common divisor of all costs; 0 if prices have none."""
        scaled = self.price_usd_per_h * PRICE_GRID
        whole = np.rint(scaled)
        if np.any(np.abs(scaled - whole) > 1e-6) or np.any(whole > 2**53):
            return 0.0
        return gcd(*(int(price) for price in whole)) / PRICE_GRID

    def cost_usd_per_h(self, counts: npt.NDArray[np.int64]) -> float:
        return float(counts @ self.price_usd_per_h)


def tables_of(problem: MixProblem, *, routes: Collection[int]) -> list[Table] | None:
    """One table per workload, or None if the problem needs `planner.solve.ilp`."""
    if not _is_plain(problem, routes):
        return None
    return [_table(problem, w, [r for r in routes if problem.routes[r].load == w]) for w in range(len(problem.loads))]


def replicas_per_unit(problem: MixProblem, option: int) -> int:
    replica = problem.options[option]
    return problem.supplies[replica.supply].slots // replica.slots


def _is_plain(problem: MixProblem, routes: Collection[int]) -> bool:
    if not problem.objective.is_price_only or problem.limits or problem.losses or problem.erring_buckets:
        return False
    change = problem.change
    if change.max_started is not None or change.max_stopped is not None:
        return False
    if not all(_is_plain_load(load.rate_rps, load.min_replicas) for load in problem.loads):
        return False
    legs = [problem.routes[r].legs for r in routes]
    if any(len(route) != 1 for route in legs):
        return False
    supplies = [problem.options[route[0].option].supply for route in legs]
    options = {route[0].option for route in legs}
    priced = all(problem.supplies[f].price_usd_per_h > 0 for f in supplies)
    return priced and len(options) == len(set(supplies)) == len(supplies)


def _is_plain_load(rate_rps: tuple[float, ...], min_replicas: int) -> bool:
    """Whether every mix that serves the demand has the minimum of replicas."""
    return min_replicas <= (1 if any(rate > 0 for rate in rate_rps) else 0)


def replicas_per_share(problem: MixProblem, load: int, routes: Sequence[int]) -> tuple[Floats, Indices]:
    """`a` of one-legged routes as (route, bucket), infinite if they cannot serve it; and the buckets with demand."""
    rates = np.array(problem.loads[load].rate_rps)
    buckets = np.flatnonzero(rates > 0)
    capacity_rps = np.array([problem.routes[r].legs[0].max_rps for r in routes], dtype=float)
    capacity_rps = capacity_rps.reshape(len(routes), len(rates))[:, buckets]
    serves = capacity_rps > 0
    busy = np.maximum(MIN_BUSY_REPLICAS, rates[buckets] / np.where(serves, capacity_rps, 1.0))
    return np.where(serves, busy / problem.loads[load].utilisation, inf), buckets


def _table(problem: MixProblem, load: int, routes: list[int]) -> Table:
    needed, buckets = replicas_per_share(problem, load, routes)
    options = [problem.routes[r].legs[0].option for r in routes]
    carried = [replicas_per_unit(problem, option) * problem.options[option].uptime for option in options]
    supplies = [problem.supplies[problem.options[option].supply] for option in options]
    return Table(
        units=needed / np.array(carried, dtype=float).reshape(-1, 1),
        price_usd_per_h=np.array([supply.price_usd_per_h for supply in supplies], dtype=float),
        stock=np.array([inf if supply.available is None else supply.available for supply in supplies], dtype=float),
        routes=np.array(routes, dtype=np.intp),
        buckets=buckets,
    )


@dataclass(frozen=True)
class Classes:
    """A presolved table: rows are classes; offers are sorted by class, the cheapest first."""

    units: Floats  # (class, bucket)
    offer_class: Indices  # per offer
    offer_option: Indices  # per offer, the option of the original table
    price_usd_per_h: Floats  # per offer
    stock: Floats  # per offer

    @cached_property
    def unlimited_usd_per_h(self) -> Floats:
        """Per class, the price of its unlimited offer; infinite without one."""
        prices = np.full(len(self.units), np.inf)
        free = ~np.isfinite(self.stock)
        np.minimum.at(prices, self.offer_class[free], self.price_usd_per_h[free])
        return prices

    @cached_property
    def cheapest_usd_per_h(self) -> Floats:
        """Per class, the price of its first unit."""
        prices = np.full(len(self.units), np.inf)
        np.minimum.at(prices, self.offer_class, self.price_usd_per_h)
        return prices

    def only(self, classes: Indices) -> "Classes":
        position = np.full(len(self.units), -1)
        position[classes] = np.arange(len(classes))
        kept = position[self.offer_class] >= 0
        return Classes(
            self.units[classes],
            position[self.offer_class[kept]],
            self.offer_option[kept],
            self.price_usd_per_h[kept],
            self.stock[kept],
        )


def presolved(table: Table) -> Classes:
    """The classes of a table that can be in a cheapest mix."""
    classes = _merge_buckets(_classes(table))
    return classes.only(np.flatnonzero(~_dominated(classes)))


def _classes(table: Table) -> Classes:
    serving = np.flatnonzero(np.isfinite(table.units).any(axis=1) & (table.stock > 0))
    first, offer_class = _distinct(table.units[serving])
    order = np.lexsort((serving, np.isfinite(table.stock[serving]), table.price_usd_per_h[serving], offer_class))
    classes = Classes(
        units=table.units[serving][first],
        offer_class=offer_class[order],
        offer_option=serving[order],
        price_usd_per_h=table.price_usd_per_h[serving][order],
        stock=table.stock[serving][order],
    )
    return _without_dearer(classes)


def _without_dearer(classes: Classes) -> Classes:
    """Without the offers behind an unlimited one of their class."""
    limited = np.isfinite(classes.stock)
    before = np.concatenate([[0], np.cumsum(~limited)[:-1]]) if len(limited) else np.zeros(0)
    first = np.searchsorted(classes.offer_class, np.arange(len(classes.units)))
    kept = before == before[first][classes.offer_class] if len(limited) else limited
    return Classes(
        classes.units,
        classes.offer_class[kept],
        classes.offer_option[kept],
        classes.price_usd_per_h[kept],
        classes.stock[kept],
    )


def _dominated(classes: Classes) -> npt.NDArray[np.bool_]:
    """Per class, whether another one dominates it; the first of two equals stays."""
    needs_less = np.all(classes.units[:, None, :] <= classes.units[None, :, :], axis=2)
    costs_less = classes.unlimited_usd_per_h[:, None] <= classes.cheapest_usd_per_h[None, :]
    beats = needs_less & costs_less
    np.fill_diagonal(beats, val=False)
    mutual = beats & beats.T
    return np.asarray((beats & ~(mutual & np.tri(len(beats), dtype=bool))).any(axis=0))


def _merge_buckets(classes: Classes) -> Classes:
    """Proportional columns added: their loads are the same multiple of one another for every option."""
    if not np.isfinite(classes.units).any(axis=0).all():
        return classes  # infeasible
    scale = np.min(classes.units, axis=0)
    shape = np.round(classes.units / scale, 12)
    first, group = _distinct(shape.T)
    if len(first) == classes.units.shape[1]:
        return classes
    weight = np.bincount(group, weights=scale) / scale[first]
    units = classes.units[:, first] * weight
    return Classes(units, classes.offer_class, classes.offer_option, classes.price_usd_per_h, classes.stock)


def _distinct(rows: Floats) -> tuple[Indices, Indices]:
    """Indices of the first row of each kind, and each row's kind."""
    kinds: dict[bytes, int] = {}
    kind = np.array([kinds.setdefault(row.tobytes(), len(kinds)) for row in rows], dtype=np.intp)
    return np.unique(kind, return_index=True)[1], kind
