"""One workload of a mix problem as arrays, the input of the fast method.

A `Table` is P1 of docs/explanation/planner/formulation.md for one workload with objective `cost`, one-legged routes, no
free units, and no supply shared by two options.  A unit of a supply then holds replicas of one option, so `units[o, b]`
is the number of units that bucket `b` needs if option `o` serves all of it; infinite if it cannot.
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
    """Rates, prices and stock of one workload's options."""

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
    """Replicas of an option that one unit of its supply holds."""
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
