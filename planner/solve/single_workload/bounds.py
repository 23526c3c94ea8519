"""Lower bounds of a presolved table from prices, and the counts that a better mix may have.

For any price `π_g` of a class's capacity, from 0 to that of its unlimited offer, P1 costs at least
`Σ_b min_g π_g a_gb - Σ_offers max(0, π_g - p) · stock` (Lagrangian relaxation of `capacity`; without stock limits the
best `π` is the price itself).  With one class fixed to `k` units, the bound at these prices is a fractional knapsack,
solved exactly: the bucket with the highest gain per unit of capacity goes first.  The result `f_g(k)` is convex and
piecewise linear; only counts with `f_g(k)` below the best known cost can be in a better mix.
"""

from dataclasses import dataclass

import numpy as np

from planner.solve.single_workload.table import Classes, Floats, Indices

SLACK = 1e-9  # relative, on comparisons of bounds: far above the error of a sum of sixty terms
FAR = 1e15  # replaces infinity, whose product with 0 is not a number


@dataclass(frozen=True)
class Projections:
    """At one set of prices: the bound, and `f_g` at its breakpoints, per class in rising `k`."""

    bound_usd_per_h: float
    counts: Floats  # (class, breakpoint)
    values_usd_per_h: Floats  # (class, breakpoint)
    most_useful: Floats  # (class,): units with which the class serves everything it can

    def ranges(self, below_usd_per_h: float) -> tuple[Floats, Floats]:
        """Per class the least and the most units of a mix within this cost; least > most: no such mix exists."""
        inside = self.values_usd_per_h <= below_usd_per_h
        least = _crossing(self.counts, self.values_usd_per_h, inside, below_usd_per_h)
        most = -_crossing(-self.counts[:, ::-1], self.values_usd_per_h[:, ::-1], inside[:, ::-1], below_usd_per_h)
        return np.ceil(least - 1e-6), np.minimum(np.floor(most + 1e-6), self.most_useful)

    def only(self, classes: Indices) -> "Projections":
        """Some of the classes; their values stay valid for mixes without the others."""
        return Projections(
            self.bound_usd_per_h, self.counts[classes], self.values_usd_per_h[classes], self.most_useful[classes]
        )


def projections(classes: Classes, prices_usd_per_h: Floats) -> Projections:
    units = np.minimum(classes.units, FAR)
    costs = np.where(units < FAR, prices_usd_per_h[:, None] * units, FAR)
    order = np.argsort(costs, axis=0)[:2]
    cheapest = np.take_along_axis(costs, order, axis=0)
    best, second = cheapest[0], cheapest[1] if len(costs) > 1 else np.full(costs.shape[1], FAR)
    rents = _rents(classes, prices_usd_per_h)
    bound = float(best.sum() - rents.sum())
    others = np.where(order[0] == np.arange(len(costs))[:, None], second, best)  # cost per bucket without the class
    captive = (units < FAR) & (others >= FAR)  # served by this class only
    others = np.where(captive | (units >= FAR), 0.0, others)
    elsewhere = np.where(units >= FAR, best, others).sum(axis=1)
    gain = np.where(captive, np.inf, others / units)
    ranked = np.argsort(-gain, axis=1)
    filled = _running_sum(np.take_along_axis(np.where(units < FAR, units, 0.0), ranked, axis=1))
    gained = _running_sum(np.take_along_axis(others, ranked, axis=1))
    counts = np.sort(np.concatenate([filled, _stock_steps(classes), filled[:, -1:] + 1.0], axis=1), axis=1)
    values = np.empty_like(counts)
    for g, points in enumerate(counts):
        spent = np.interp(points, *_price_curve(classes, g, points[-1]))
        values[g] = elsewhere[g] + spent - np.interp(points, filled[g], gained[g]) - (rents.sum() - rents[g])
    needed = np.where(captive, units, 0.0).sum(axis=1)
    values[counts < needed[:, None] * (1 - SLACK)] = FAR
    return Projections(bound, counts, values, np.ceil(filled[:, -1] * (1 - SLACK)))


def _rents(classes: Classes, prices_usd_per_h: Floats) -> Floats:
    """Per class, the value of its offers above their price, if their whole stock is hired."""
    above = np.maximum(0.0, prices_usd_per_h[classes.offer_class] - classes.price_usd_per_h)
    rents = np.zeros(len(classes.units))
    np.add.at(rents, classes.offer_class, np.where(above > 0, above * np.minimum(classes.stock, FAR), 0.0))
    return rents


def _price_curve(classes: Classes, group: int, far: float) -> tuple[Floats, Floats]:
    """The cost of the first `k` units of a class, at its breakpoints; prohibitive beyond its stock."""
    offers = np.flatnonzero(classes.offer_class == group)
    stock, price = np.minimum(classes.stock[offers], far), classes.price_usd_per_h[offers]
    corners = _running_sum(stock[None])[0]
    costs = _running_sum((stock * price)[None])[0]
    return np.append(corners, corners[-1] + far + 1.0), np.append(
        costs, costs[-1] + (far + 1.0) * _beyond(classes, group)
    )


def _beyond(classes: Classes, group: int) -> float:
    last = np.flatnonzero(classes.offer_class == group)[-1]
    return float(classes.price_usd_per_h[last]) if np.isinf(classes.stock[last]) else FAR


def _stock_steps(classes: Classes) -> Floats:
    """Per class, the cumulative stock of its offers; padded with 0."""
    limited = np.flatnonzero(np.isfinite(classes.stock))
    per_class = np.bincount(classes.offer_class[limited], minlength=len(classes.units))
    steps = np.zeros((len(classes.units), int(per_class.max(initial=0))))
    for g in np.flatnonzero(per_class):
        ends = np.cumsum(classes.stock[limited][classes.offer_class[limited] == g])
        steps[g, : len(ends)] = ends
    return steps


def _running_sum(values: Floats) -> Floats:
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)


def _crossing(counts: Floats, values: Floats, inside: np.ndarray, below: float) -> Floats:
    """Per row, the least count at which the convex values are at most `below`; infinite if none is."""
    found = inside.any(axis=1)
    at = inside.argmax(axis=1)
    before = np.maximum(at - 1, 0)
    rows = np.arange(len(counts))
    fall = values[rows, before] - values[rows, at]
    reach = np.where(fall > 0, (below - values[rows, at]) / np.where(fall > 0, fall, 1.0), 0.0)
    edge = counts[rows, at] - np.clip(reach, 0.0, 1.0) * (counts[rows, at] - counts[rows, before])
    return np.where(found, edge, np.inf)
