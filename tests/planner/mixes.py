"""Small mix problems: a strategy that draws them, and an exhaustive oracle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pulp
from hypothesis import strategies as st

from planner.problem import Leg, Load, MixProblem, ReplicaOption, Route, Supply


@dataclass(frozen=True, slots=True)
class RoutedOption:
    """An option with its own route for the requests of one workload."""

    name: str
    gpu: str
    load: int
    supply: int
    max_rps: tuple[float, ...]
    slots: int = 1


def mix_of(
    loads: tuple[Load, ...], supplies: tuple[Supply, ...], ways: tuple[RoutedOption, ...], **more: Any
) -> MixProblem:
    """A problem in which every option has its own route."""
    options = tuple(ReplicaOption(way.name, way.gpu, way.supply, way.slots) for way in ways)
    routes = tuple(Route(way.name, way.load, (Leg(o, way.max_rps),)) for o, way in enumerate(ways))
    return MixProblem(loads, supplies, options, routes, **more)


def reached_by(problem: MixProblem) -> list[tuple[int, tuple[float, ...]]]:
    """Per option its load and rates, where every option has its own route."""
    return [(route.load, route.legs[0].max_rps) for route in problem.routes]


TENTHS = st.integers(1, 60).map(lambda tenths: tenths / 10)
MAYBE_ZERO = st.just(0.0) | TENTHS


@st.composite
def mix_problems(draw: st.DrawFn, *, max_units: int | None) -> MixProblem:
    """One or two workloads on one or two supplies.  `max_units` bounds every stock; None leaves them unlimited."""
    bucket_count = draw(st.integers(1, 3))
    per_bucket = st.lists(MAYBE_ZERO, min_size=bucket_count, max_size=bucket_count).map(tuple)
    utilisation = draw(st.sampled_from((1.0, 0.8)))
    loads = tuple(
        Load(f"w{w}", draw(per_bucket), min_replicas=draw(st.integers(0, 2)), utilisation=utilisation)
        for w in range(draw(st.integers(1, 2)))
    )
    supplies = tuple(
        Supply(
            name=f"f{f}",
            price_usd_per_h=draw(MAYBE_ZERO),
            slots=draw(st.sampled_from((1, 2))),
            available=None if max_units is None else draw(st.integers(0, max_units)),
        )
        for f in range(draw(st.integers(1, 2)))
    )
    ways = tuple(
        RoutedOption(
            name=f"o{w}{f}",
            gpu=f"gpu{f}",
            load=w,
            supply=f,
            slots=draw(st.sampled_from((1, supply.slots))),
            max_rps=draw(per_bucket),
        )
        for w in range(len(loads))
        for f, supply in enumerate(supplies)
    )
    return mix_of(loads, supplies, ways)


def cheapest_by_trying(problem: MixProblem) -> float | None:
    """The lowest cost over every combination of unit counts, or None where none of them serves the demand."""
    counts = product(*(range((supply.available or 0) + 1) for supply in problem.supplies))
    for units in sorted(counts, key=problem.cost_usd_per_h):
        if any(_serves(problem, replicas) for replicas in _largest_replica_counts(problem, units)):
            return problem.cost_usd_per_h(units)
    return None


def _largest_replica_counts(problem: MixProblem, units: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Replica counts that fit on the units and to which no replica can be added; fewer replicas never serve more."""
    gpus = [supply.slots * count for supply, count in zip(problem.supplies, units, strict=True)]
    most = [gpus[option.supply] // option.slots for option in problem.options]
    for replicas in product(*(range(count + 1) for count in most)):
        free = list(gpus)
        for option, count in zip(problem.options, replicas, strict=True):
            free[option.supply] -= option.slots * count
        if min(free) >= 0 and all(option.slots > free[option.supply] for option in problem.options):
            yield replicas


def _serves(problem: MixProblem, replicas: Sequence[int]) -> bool:
    """Check whether some split of the rates keeps every option within its replicas."""
    for w, load in enumerate(problem.loads):
        running = sum(n for n, (served, _) in zip(replicas, reached_by(problem), strict=True) if served == w)
        if running < load.min_replicas:
            return False
    program = pulp.LpProblem("oracle", pulp.LpMinimize)
    rates = {
        (o, b): program.add_variable(f"rate_{o}_{b}", 0)
        for o, (_, rates_rps) in enumerate(reached_by(problem))
        for b, max_rps in enumerate(rates_rps)
        if max_rps > 0 and replicas[o] > 0
    }
    for w, load in enumerate(problem.loads):
        for b, rate_rps in enumerate(load.rate_rps):
            served = [rate for (o, taken), rate in rates.items() if taken == b and reached_by(problem)[o][0] == w]
            if not served and rate_rps > 0:
                return False
            program += pulp.lpSum(served) == rate_rps, f"served_{w}_{b}"
    for o, (w, rates_rps) in enumerate(reached_by(problem)):
        busy = [rate * (1 / rates_rps[b]) for (taker, b), rate in rates.items() if taker == o]
        program += pulp.lpSum(busy) <= problem.loads[w].utilisation * replicas[o], f"carried_{o}"
    program.setObjective(pulp.lpSum(rates.values()))
    program.solve(pulp.HiGHS(msg=False, threads=1))
    return bool(program.status == pulp.LpStatusOptimal)
