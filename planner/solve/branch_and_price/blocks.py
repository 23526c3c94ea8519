"""Splits a mix problem into blocks that share no replica, and the rows that couple them.

Loads that may use the same option form one block.  Blocks share only GPUs of a supply and limits, so they are coupled
by their counts alone (docs/explanation/planner/decomposition.md, section 1).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np
import numpy.typing as npt

from planner.problem import MixProblem

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Block:
    """Loads with the options that only they may use.  Columns are (route, bucket) pairs, sorted by bucket."""

    loads: tuple[int, ...]
    options: Ints  # the problem's indices; a position here is a local option
    column_bucket: Ints  # local: 0, 1, ... over the buckets with demand of all its loads
    bucket_of: tuple[tuple[int, int], ...]  # local bucket -> (load, bucket)
    leg_option: Ints  # column x leg -> local option
    leg_weight: Floats  # column x leg -> replicas that its whole bucket needs; padded with 0
    sums: Floats  # per supply with several options, the GPUs of one replica of each
    fewest: tuple[tuple[Ints, int], ...]  # local options, and their minimum of replicas together

    @cached_property
    def most(self) -> Floats:
        """Per option, the replicas with which it serves everything it can."""
        needed = np.zeros((len(self.options), len(self.bucket_of)))
        for leg in range(self.leg_option.shape[1]):
            np.maximum.at(needed, (self.leg_option[:, leg], self.column_bucket), self.leg_weight[:, leg])
        most = np.ceil(needed.sum(axis=1) + 1e-6)
        for options, count in self.fewest:
            most[options] = np.maximum(most[options], count)
        return np.asarray(most, np.float64)

    @cached_property
    def is_servable(self) -> bool:
        buckets = len(np.unique(self.column_bucket)) == len(self.bucket_of)
        return buckets and all(len(options) > 0 for options, _ in self.fewest)

    @cached_property
    def _first_columns(self) -> Ints:
        return np.searchsorted(self.column_bucket, np.arange(len(self.bucket_of)))

    def cover(self, valuation: Floats) -> Floats | None:
        """A row `row · n >= 1` valid for all whole counts that serve, from any prices per replica; None if it is empty.

        `g(y) = Σ_b min_r Σ_o y_o a_rob`: counts worth less cannot serve.  An option needs no
        higher price than the one at which its best bucket costs as much as elsewhere, nor more than the whole demand,
        which one replica then meets.
        """
        if not self.bucket_of:
            return None
        of_bucket = np.minimum.reduceat((valuation[self.leg_option] * self.leg_weight).sum(axis=1), self._first_columns)
        need = float(of_bucket.sum()) * (1 - 1e-12)
        if need <= 1e-9 * float(valuation.max(initial=0.0)):
            return None
        if self.leg_option.shape[1] == 1:
            valuation = np.zeros_like(valuation)
            np.maximum.at(valuation, self.leg_option[:, 0], of_bucket[self.column_bucket] / self.leg_weight[:, 0])
        return np.minimum(valuation / need, 1.0)


@dataclass(frozen=True)
class Coupling:
    """The rows between blocks: `Σ_o replicas[i, o] n_o + Σ_f units[i, f] m_f <= at_most[i]`, packing first."""

    price: Floats  # per supply, of one unit
    replicas: Floats  # row x option
    units: Floats  # row x supply
    at_most: Floats
    scale: Floats  # the divisor of each row's coefficients
    available: Floats  # per supply; without a limit the most useful units, or infinitely many


def blocks_of(problem: MixProblem) -> tuple[Block, ...]:
    return tuple(_block(problem, loads) for loads in _groups(problem))


def coupling_of(problem: MixProblem, blocks: Sequence[Block]) -> Coupling:
    """Packing per supply, then the limits, each divided by its largest coefficient."""
    supplies, options, limits = problem.supplies, problem.options, problem.limits
    replicas = np.zeros((len(supplies) + len(limits), len(options)))
    units = np.zeros((len(supplies) + len(limits), len(supplies)))
    at_most, scales = np.zeros(len(supplies) + len(limits)), np.ones(len(supplies) + len(limits))
    for o, option in enumerate(options):
        replicas[option.supply, o] = option.slots
    for f, supply in enumerate(supplies):
        units[f, f] = -supply.slots
    for i, limit in enumerate(limits, start=len(supplies)):
        for o, weight in limit.replicas.items():
            replicas[i, o] = weight
        for f, weight in limit.units.items():
            units[i, f] = weight
        scales[i] = scale = max(np.abs(replicas[i]).max(initial=0.0), np.abs(units[i]).max(initial=0.0)) or 1.0
        replicas[i], units[i], at_most[i] = replicas[i] / scale, units[i] / scale, limit.at_most / scale
    price = np.array([supply.price_usd_per_h for supply in supplies])
    return Coupling(price, replicas, units, at_most, scales, _available(problem, blocks))


def _available(problem: MixProblem, blocks: Sequence[Block]) -> Floats:
    """The stock; without one, the units that all replicas fill, unless a limit needs more units than others."""
    slots = np.zeros(len(problem.supplies))
    for block in blocks:
        for o, most in zip(block.options, block.most, strict=True):
            slots[problem.options[o].supply] += problem.options[o].slots * most
    diluting = {f for limit in problem.limits for f, weight in limit.units.items() if weight < 0}
    available = np.array([inf if supply.available is None else supply.available for supply in problem.supplies])
    for f, supply in enumerate(problem.supplies):
        if f not in diluting:
            available[f] = min(available[f], np.ceil(slots[f] / supply.slots))
    return available


def _groups(problem: MixProblem) -> list[tuple[int, ...]]:
    leader = list(range(len(problem.loads)))

    def find(w: int) -> int:
        while leader[w] != w:
            w = leader[w]
        return w

    first_user: dict[int, int] = {}
    for route in problem.routes:
        for leg in route.legs:
            one, other = find(first_user.setdefault(leg.option, route.load)), find(route.load)
            leader[max(one, other)] = min(one, other)
    groups: dict[int, list[int]] = {}
    for w in range(len(problem.loads)):
        groups.setdefault(find(w), []).append(w)
    return [tuple(loads) for loads in groups.values()]


def _block(problem: MixProblem, loads: tuple[int, ...]) -> Block:
    bucket_of = tuple((w, b) for w in loads for b, rate_rps in enumerate(problem.loads[w].rate_rps) if rate_rps > 0)
    routes = [r for r, route in enumerate(problem.routes) if route.load in loads]
    options = sorted({leg.option for r in routes for leg in problem.routes[r].legs})
    local = {o: position for position, o in enumerate(options)}
    columns = list(_columns(problem, routes, bucket_of))
    legs = max((len(problem.routes[r].legs) for r in routes), default=1)
    leg_option, leg_weight = np.zeros((len(columns), legs), np.int64), np.zeros((len(columns), legs))
    for column, (bucket, r) in enumerate(columns):
        route = problem.routes[r]
        for position, leg in enumerate(route.legs):
            replicas = problem.replicas_per_share(route, leg, bucket_of[bucket][1])
            leg_option[column, position] = local[leg.option]
            leg_weight[column, position] = replicas / problem.options[leg.option].uptime
    fewest = tuple(
        (np.array([local[o] for o in problem.options_of(w)], np.int64), problem.loads[w].min_replicas)
        for w in loads
        if problem.loads[w].min_replicas > 0
    )
    return Block(
        loads=loads,
        options=np.array(options, np.int64),
        column_bucket=np.array([bucket for bucket, _ in columns], np.int64),
        bucket_of=bucket_of,
        leg_option=leg_option,
        leg_weight=leg_weight,
        sums=_sums(problem, options),
        fewest=fewest,
    )


def _sums(problem: MixProblem, options: Sequence[int]) -> Floats:
    drawn = [problem.options[o].supply for o in options]
    shared = [f for f in dict.fromkeys(drawn) if drawn.count(f) > 1]
    slots = np.array([problem.options[o].slots for o in options], float)
    return np.array([np.where(np.array(drawn) == f, slots, 0.0) for f in shared]).reshape(len(shared), len(options))


def _columns(
    problem: MixProblem, routes: Sequence[int], bucket_of: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """(local bucket, route) for each route that serves the bucket, by bucket."""
    for bucket, (w, b) in enumerate(bucket_of):
        for r in routes:
            if problem.routes[r].load == w and problem.routes[r].serves(b):
                yield bucket, r
