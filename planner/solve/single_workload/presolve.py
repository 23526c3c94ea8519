"""Reductions of a table that keep its optimum.

- Options with the same table form a class, whose cheapest offers are hired first.  Offers of a class that are dearer
  than its cheapest unlimited one are removed.
- A class is dominated by one that needs no more units for any bucket and has an unlimited offer at no higher a price
  than the dominated one's cheapest.
- Buckets with proportional columns are merged: their shares load every option in the same proportion.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from planner.solve.single_workload.table import Floats, Indices, Table


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
