"""Solutions with given replica counts: whether they meet all requirements, and the fewest replicas that do.

Hysteresis keeps running replicas with them, validation sizes plans, and explanations reduce mixes that the time limit
cut off.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, fsum

from fleet.solvers import SolverError, SolveStatus
from planner.problem import MixProblem
from planner.solve.routing import route, survives
from planner.solve.solution import MixSolution, busy_replicas, objective_value

ROUNDING = 1e-9
PASSES = 3  # over all options; fewer replicas of one may allow fewer of another

Counts = tuple[int, ...]
Holds = Callable[[Counts], bool]  # whether the counts meet every requirement


def units_of(problem: MixProblem, replicas: Sequence[int]) -> Counts:
    units = [0] * len(problem.supplies)
    gpus = [0] * len(problem.supplies)
    for option, count in zip(problem.options, replicas, strict=True):
        if problem.own_nodes:
            units[option.supply] += ceil(option.slots * count / problem.supplies[option.supply].slots)
        else:
            gpus[option.supply] += option.slots * count
    return tuple(
        own + ceil(used / supply.slots) for own, used, supply in zip(units, gpus, problem.supplies, strict=True)
    )


def within_limits(problem: MixProblem, *, units: Sequence[int], replicas: Sequence[int]) -> bool:
    """Whether the rows `stock`, `limit`, `min_replicas`, `starts` and `stops` hold."""
    if any(s.available is not None and m > s.available for s, m in zip(problem.supplies, units, strict=True)):
        return False
    for limit in problem.limits:
        used = fsum(weight * units[f] for f, weight in limit.units.items())
        used += fsum(weight * replicas[o] for o, weight in limit.replicas.items())
        if used > limit.at_most * (1 + ROUNDING) + ROUNDING:
            return False
    moves = [count - option.held for count, option in zip(replicas, problem.options, strict=True)]
    change = problem.change
    if change.max_started is not None and sum(max(0, move) for move in moves) > change.max_started:
        return False
    if change.max_stopped is not None and sum(max(0, -move) for move in moves) > change.max_stopped:
        return False
    return all(
        sum(replicas[o] for o in problem.options_of(w)) >= load.min_replicas for w, load in enumerate(problem.loads)
    )


def at_counts(problem: MixProblem, solution: MixSolution, replicas: Counts) -> MixSolution | None:
    """Other counts under the solution's bound; None if they break a requirement."""
    units = units_of(problem, replicas)
    if not within_limits(problem, units=units, replicas=replicas):
        return None
    try:
        shares = route(problem, replicas=replicas)
    except SolverError:
        return None
    if not all(survives(problem, loss, replicas=replicas) for loss in problem.losses):
        return None
    value = objective_value(problem, units=units, replicas=replicas, shares=shares)
    return replace(
        solution,
        status=SolveStatus.OPTIMAL if value <= solution.bound + ROUNDING else SolveStatus.FEASIBLE,
        bound=min(solution.bound, value),
        objective_value=value,
        cost_usd_per_h=problem.cost_usd_per_h(units),
        units=units,
        replicas=replicas,
        shares=shares,
        busy=busy_replicas(problem, shares=shares),
    )


def pruned(problem: MixProblem, replicas: Counts, *, holds: Holds) -> Counts:
    """The counts without the replicas that no requirement needs, the dearest options first."""
    for _ in range(PASSES):
        before = replicas
        for option in _dearest_first(problem, replicas):
            replicas = _fewest(replicas, option, holds=holds)
        if replicas == before:
            break
    return replicas


def one_option_per_load(problem: MixProblem) -> Counts | None:
    """Counts with which each workload runs on its cheapest sufficient option; None if one has no such option.

    This needs no solver.  `at_counts` checks the limits that workloads share.
    """
    replicas = [0] * len(problem.options)
    for w, load in enumerate(problem.loads):
        demanded = [b for b, rate_rps in enumerate(load.rate_rps) if rate_rps > 0]
        if not demanded and not load.min_replicas:
            continue
        ways = []
        for way in problem.routes:
            if way.load == w and len(way.legs) == 1 and all(way.serves(b) for b in demanded):
                (leg,) = way.legs
                option = problem.options[leg.option]
                busy = fsum(problem.replicas_per_share(way, leg, b) for b in demanded)
                count = max(load.min_replicas, ceil(busy / option.uptime - ROUNDING)) if option.uptime > 0 else 0
                supply = problem.supplies[option.supply]
                units = ceil(count * option.slots / supply.slots)
                if count and (supply.available is None or units <= supply.available):
                    ways.append((units * supply.price_usd_per_h, count, leg.option))
        if not ways:
            return None
        _, count, o = min(ways)
        replicas[o] += count
    return tuple(replicas)


def _fewest(replicas: Counts, option: int, *, holds: Holds) -> Counts:
    """By bisection: counts that hold also hold with more replicas."""
    least, most = -1, replicas[option]  # `most` holds; `least` does not
    while most - least > 1:
        middle = max(0, (least + most) // 2)
        if holds(_with(replicas, option, middle)):
            most = middle
        else:
            least = middle
    return _with(replicas, option, most)


def _dearest_first(problem: MixProblem, replicas: Counts) -> list[int]:
    def usd_per_h(option: int) -> float:
        supply = problem.supplies[problem.options[option].supply]
        return supply.price_usd_per_h * problem.options[option].slots / supply.slots

    return sorted((o for o, count in enumerate(replicas) if count), key=usd_per_h, reverse=True)


def _with(replicas: Sequence[int], option: int, count: int) -> Counts:
    return (*replicas[:option], count, *replicas[option + 1 :])
