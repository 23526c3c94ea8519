"""Solutions with given replica counts: P3, their routing, whether they meet all requirements, and the fewest that do.

HiGHS always solves P3: there is nothing to prove, and CBC has reported a routing as optimal that was not.
`keep_running` is the hysteresis of plans; validation and explanations reduce counts with `pruned`.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil, fsum

from fleet.solvers import Limits, Solver, SolverError, SolveStatus, run
from planner.problem import Loss, MixProblem
from planner.solve import ilp, single_workload
from planner.solve.solution import MixSolution, Shares, objective_value

NEGLIGIBLE_SHARE = 1e-9  # shares below this are the solver's rounding
OVERLOAD_TOLERANCE = 1e-6  # relative: by how much rounding may lift a load above its limit
ROUTING_LIMITS = Limits(time_limit_s=60.0)  # far above the milliseconds that this linear program takes
ROUNDING = 1e-9
PASSES = 3  # over all options; fewer replicas of one may allow fewer of another

Counts = tuple[int, ...]
Holds = Callable[[Counts], bool]  # whether the counts meet every requirement


def route(problem: MixProblem, *, replicas: Sequence[int]) -> Shares:
    """The most even routing over these replicas: positive shares that sum to one per bucket.

    SolverError where the replicas cannot carry the demand.
    """
    if not any(problem.buckets()):
        return {}
    shares = normalised(problem, _min_max_load(problem, replicas=replicas))
    refuse_overload(problem, replicas=replicas, shares=shares)
    return shares


def survives(problem: MixProblem, loss: Loss, *, replicas: tuple[int, ...]) -> bool:
    try:
        route(problem, replicas=loss.survivors(replicas))
    except SolverError:
        return False
    return True


def normalised(problem: MixProblem, raw: Mapping[tuple[int, int], float]) -> Shares:
    """Shares without the solver's rounding, which sum to one per bucket."""
    kept = {key: share for key, share in raw.items() if share > NEGLIGIBLE_SHARE}
    totals: dict[tuple[int, int], float] = {}
    for (r, b), share in kept.items():
        bucket = problem.routes[r].load, b
        totals[bucket] = totals.get(bucket, 0.0) + share
    return {(r, b): share / totals[problem.routes[r].load, b] for (r, b), share in kept.items()}


def refuse_overload(problem: MixProblem, *, replicas: Sequence[int], shares: Shares) -> None:
    needed = [0.0] * len(problem.options)
    for (r, b), share in shares.items():
        for leg in problem.routes[r].legs:
            needed[leg.option] += share * problem.replicas_per_share(problem.routes[r], leg, b)
    for option, count, load in zip(problem.options, replicas, needed, strict=True):
        if load > option.uptime * count * (1 + OVERLOAD_TOLERANCE):
            raise SolverError(f"{count} replicas of {option.name} cannot carry the load of {load:.9g}")


def _min_max_load(problem: MixProblem, *, replicas: Sequence[int]) -> Mapping[tuple[int, int], float]:
    if single_workload.is_plain(problem):
        return single_workload.min_max_load(problem, replicas=replicas, limits=ROUTING_LIMITS)
    model = ilp.min_max_load(problem, replicas=replicas)
    outcome = run(model.program, solver=Solver.HIGHS, limits=ROUTING_LIMITS)
    if not outcome.status.has_mix:
        raise SolverError(f"the counts {tuple(replicas)} admit no routing ({outcome.status})")
    return model.shares_found()


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
    units = problem.units_of(replicas)
    if not within_limits(problem, units=units, replicas=replicas):
        return None
    try:
        shares = route(problem, replicas=replicas)
    except SolverError:
        return None
    if not all(survives(problem, loss, replicas=replicas) for loss in problem.losses):
        return None
    value = objective_value(problem, units=units, replicas=replicas, shares=shares)
    status = SolveStatus.OPTIMAL if value <= solution.bound + ROUNDING else SolveStatus.FEASIBLE
    return MixSolution.of(problem, status=status, bound=solution.bound, units=units, replicas=replicas, shares=shares)


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


def keep_running(problem: MixProblem, solution: MixSolution, *, within: float) -> MixSolution:
    """Hysteresis: the running replicas stay while they suffice and cost at most this share above the proven bound.

    The same request then gets the same result, and noise flips no replicas.
    """
    held = tuple(option.held for option in problem.options)
    if not problem.objective.serves_all or solution.objective_value is None:
        return solution
    if not any(held) or held == solution.replicas:
        return solution
    running = at_counts(problem, solution, held)
    if running is None or running.objective_value is None:
        return solution
    worth_it = running.objective_value > solution.bound * (1 + within) + ROUNDING
    return solution if worth_it else running
