"""Keeping what runs: a new plan must be worth the move.

The same request asked again must get the same answer, and a little noise must not flip replicas.  So where the replicas
that run now hold everything the request asks for, and cost at most so much more than the proven bound on any mix, they
are the plan.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, fsum

from fleet.solvers import SolverError, SolveStatus
from planner.problem import Goal, MixProblem
from planner.solve.dispatch import MixSolution, busy_replicas, goal_value, route, survives

ROUNDING = 1e-9


def kept(problem: MixProblem, solution: MixSolution, *, within: float) -> MixSolution:
    """The running replicas as a solution where they may stay, else the solution as it is."""
    held = tuple(option.held for option in problem.options)
    if problem.goal is Goal.SERVED or not any(held) or held == solution.replicas or solution.goal_value is None:
        return solution
    running = at_counts(problem, solution, held)
    if running is None or running.goal_value is None:
        return solution
    worth_it = running.goal_value > solution.bound * (1 + within) + ROUNDING
    return solution if worth_it else running


def units_of(problem: MixProblem, replicas: Sequence[int]) -> tuple[int, ...]:
    """Whole units that so many replicas stand on."""
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
    """Stock, quotas, power, spot share, budget, fewest replicas."""
    if any(s.available is not None and m > s.available for s, m in zip(problem.supplies, units, strict=True)):
        return False
    for limit in problem.limits:
        used = fsum(weight * units[f] for f, weight in limit.units.items())
        used += fsum(weight * replicas[o] for o, weight in limit.replicas.items())
        if used > limit.at_most * (1 + ROUNDING) + ROUNDING:
            return False
    return all(
        sum(replicas[o] for o in problem.options_of(w)) >= load.min_replicas for w, load in enumerate(problem.loads)
    )


def at_counts(problem: MixProblem, solution: MixSolution, held: tuple[int, ...]) -> MixSolution | None:
    """Other counts under the solution's bound; None where they do not hold all that is asked for."""
    units = units_of(problem, held)
    if not within_limits(problem, units=units, replicas=held):
        return None
    try:
        shares = route(problem, replicas=held)
    except SolverError:
        return None
    if not all(survives(problem, loss, replicas=held) for loss in problem.losses):
        return None
    value = goal_value(problem, units=units, replicas=held, shares=shares)
    return replace(
        solution,
        status=SolveStatus.OPTIMAL if value <= solution.bound + ROUNDING else SolveStatus.FEASIBLE,
        bound=min(solution.bound, value),
        goal_value=value,
        cost_usd_per_h=problem.cost_usd_per_h(units),
        units=units,
        replicas=held,
        shares=shares,
        busy=busy_replicas(problem, shares=shares),
    )
