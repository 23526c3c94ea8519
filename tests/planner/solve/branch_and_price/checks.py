"""An independent check of the rows of docs/explanation/planner/formulation.md, section 3."""

from math import isclose

from planner.problem import MixProblem
from planner.solve.solution import MixSolution

TOLERANCE = 1e-5


def broken_rows(problem: MixProblem, solution: MixSolution) -> list[str]:
    """Return the names of the rows that a solution with a mix violates, from its counts and shares alone."""
    return [
        *_demand(problem, solution),
        *_capacity(problem, solution),
        *_packing(problem, solution),
        *_stock(problem, solution),
        *_limits(problem, solution),
        *_min_replicas(problem, solution),
    ]


def _demand(problem: MixProblem, solution: MixSolution) -> list[str]:
    broken = []
    for w, load in enumerate(problem.loads):
        for b, rate_rps in enumerate(load.rate_rps):
            taken = [share for (r, c), share in solution.shares.items() if c == b and problem.routes[r].load == w]
            if rate_rps > 0 and (min(taken, default=-1) < 0 or not isclose(sum(taken), 1, abs_tol=TOLERANCE)):
                broken.append(f"demand[{w},{b}]")
    return broken


def _capacity(problem: MixProblem, solution: MixSolution) -> list[str]:
    broken = []
    for o, option in enumerate(problem.options):
        busy = 0.0
        for (r, b), share in solution.shares.items():
            load = problem.loads[problem.routes[r].load]
            for leg in problem.routes[r].legs:
                if leg.option == o:
                    busy += share * load.rate_rps[b] / (leg.max_rps[b] * load.utilisation)
        if busy > option.uptime * solution.replicas[o] * (1 + TOLERANCE) + 1e-9:
            broken.append(f"capacity[{o}]")
    return broken


def _packing(problem: MixProblem, solution: MixSolution) -> list[str]:
    return [
        f"packing[{f}]"
        for f, supply in enumerate(problem.supplies)
        if sum(
            option.slots * n for option, n in zip(problem.options, solution.replicas, strict=True) if option.supply == f
        )
        > supply.slots * solution.units[f]
    ]


def _stock(problem: MixProblem, solution: MixSolution) -> list[str]:
    return [
        f"stock[{f}]"
        for f, supply in enumerate(problem.supplies)
        if supply.available is not None and solution.units[f] > supply.available
    ]


def _limits(problem: MixProblem, solution: MixSolution) -> list[str]:
    broken = []
    for limit in problem.limits:
        used = sum(weight * solution.units[f] for f, weight in limit.units.items())
        used += sum(weight * solution.replicas[o] for o, weight in limit.replicas.items())
        if used > limit.at_most + TOLERANCE * max(1.0, abs(limit.at_most)):
            broken.append(f"limit[{limit.name}]")
    return broken


def _min_replicas(problem: MixProblem, solution: MixSolution) -> list[str]:
    return [
        f"min_replicas[{w}]"
        for w, load in enumerate(problem.loads)
        if sum(solution.replicas[o] for o in problem.options_of(w)) < load.min_replicas
    ]
