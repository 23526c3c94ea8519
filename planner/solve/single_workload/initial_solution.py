"""An initial mix: the whole units of the relaxation, then a beam search over the rest.

The relaxation sends each bucket to its cheapest class; the integer part of each class's load is hired at no loss.  The
rest needs less than a unit of every class.  The beam adds one unit at a time, filled with the buckets of the highest
gain, and keeps the states with the least cost plus relaxation of the rest.  Each state also ends with the one class
that serves all the rest for the least.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.solve.single_workload.bounds import FAR
from planner.solve.single_workload.table import CAPACITY_TOLERANCE, Classes, Floats

BEAM = 2
NOTHING = 1e-9  # of a bucket: rounding


@dataclass(frozen=True)
class _State:
    counts: Floats  # per class
    rest: Floats  # per bucket, the unserved share


def initial_mix(classes: Classes, prices_usd_per_h: Floats) -> npt.NDArray[np.int64] | None:
    """Units per offer of a mix that serves everything, or None if the search found none."""
    prices = np.maximum(prices_usd_per_h, classes.cheapest_usd_per_h)
    stock = np.zeros(len(classes.units))
    np.add.at(stock, classes.offer_class, classes.stock)
    best: npt.NDArray[np.int64] | None = None
    best_usd_per_h = np.inf
    beam = [_whole_part(classes, prices, stock)]
    while beam:
        grown: list[tuple[float, _State]] = []
        for state in beam:
            for counts in _finished(classes, prices, stock, state):
                units = offers_of(classes, counts)
                if (cost := float(units @ classes.price_usd_per_h)) < best_usd_per_h:
                    best, best_usd_per_h = units, cost
            grown += _grown(classes, prices, stock, state)
        grown = [(score, state) for score, state in grown if score < best_usd_per_h * (1 - CAPACITY_TOLERANCE)]
        beam = _distinct([state for _, state in sorted(grown, key=lambda scored: scored[0])])
    return best


def offers_of(classes: Classes, counts: Floats) -> npt.NDArray[np.int64]:
    """Units per class taken from its offers, the cheapest first."""
    units = np.zeros(len(classes.stock), dtype=np.int64)
    for g in np.flatnonzero(counts > 0):
        left = counts[g]
        for offer in np.flatnonzero(classes.offer_class == g):
            units[offer] = int(min(left, classes.stock[offer]))
            left -= units[offer]
    return units


def _whole_part(classes: Classes, prices: Floats, stock: Floats) -> _State:
    units = np.minimum(classes.units, FAR)
    taker = np.argmin(prices[:, None] * units, axis=0)
    counts, rest = np.zeros(len(units)), np.ones(units.shape[1])
    for g in np.unique(taker):
        mine = np.flatnonzero(taker == g)
        load = float(units[g, mine].sum())
        counts[g] = min(np.floor(load + CAPACITY_TOLERANCE), stock[g])
        if load > 0:
            rest[mine] = max(0.0, 1.0 - counts[g] / load)
    return _State(counts, rest)


def _finished(classes: Classes, prices: Floats, stock: Floats, state: _State) -> list[Floats]:
    """The counts of a state that serves everything, or completed by the cheapest single class that does."""
    if state.rest.max(initial=0.0) <= NOTHING:
        return [state.counts]
    left = np.flatnonzero(state.rest > NOTHING)
    load = (classes.units[:, left] * state.rest[left]).sum(axis=1)  # infinite if the class cannot serve all the rest
    more = np.ceil(load * (1 - CAPACITY_TOLERANCE))
    costs = np.where(np.isfinite(load) & (state.counts + more <= stock), more * prices, np.inf)
    best = int(np.argmin(costs))
    if not np.isfinite(costs[best]):
        return []
    counts = state.counts.copy()
    counts[best] += more[best]
    return [counts]


def _grown(classes: Classes, prices: Floats, stock: Floats, state: _State) -> list[tuple[float, _State]]:
    """The best states with one more unit, each with its cost plus the relaxation of its rest."""
    open_buckets = np.flatnonzero(state.rest > NOTHING)
    usable = np.flatnonzero(state.counts + 1 <= stock)
    able = classes.units[np.ix_(usable, open_buckets)] < FAR
    if not able.any(axis=0).all():  # no class in stock serves one of the buckets
        return []
    usable = usable[able.any(axis=1)]
    rest = state.rest[open_buckets]
    load = np.minimum(classes.units[np.ix_(usable, open_buckets)], FAR) * rest
    serves = np.isfinite(classes.units[np.ix_(usable, open_buckets)])
    if not load.size or not serves.any(axis=0).all():
        return []
    best = (prices[usable, None] * load).min(axis=0)
    gain = best / load
    ranked = np.argsort(-gain, axis=1)
    taken = np.take_along_axis(load, ranked, axis=1)
    free = np.clip(1.0 - (np.cumsum(taken, axis=1) - taken), 0.0, None)
    share = np.where(np.take_along_axis(serves, ranked, axis=1), np.minimum(1.0, free / taken), 0.0)
    saved = (np.take_along_axis(np.broadcast_to(best, load.shape), ranked, axis=1) * share).sum(axis=1)
    scores = prices[usable] - saved  # the unit's price less its gain
    base = float(state.counts @ prices) + float(best.sum())
    states = []
    for at in np.argsort(scores)[:BEAM]:
        counts, left = state.counts.copy(), state.rest.copy()
        counts[usable[at]] += 1
        left[open_buckets[ranked[at]]] *= 1.0 - share[at]
        states.append((base + float(scores[at]), _State(counts, left)))
    return states


def _distinct(states: list[_State]) -> list[_State]:
    kept: dict[bytes, _State] = {}
    for state in states:
        kept.setdefault(state.counts.tobytes(), state)
        if len(kept) == BEAM:
            break
    return list(kept.values())
