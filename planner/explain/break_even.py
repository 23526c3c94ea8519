"""The price below which a GPU type that the plan does not use would enter the plan.

The least cost as a function of one type's price is the minimum of one line per mix, so it is concave.  Newton's method
on these lines (Dinkelbach, Management Science 13, 1967) finds the price at which it meets the plan's cost: each step
solves the problem at the price at which the last mix costs as much as the plan.  The last step proves that no mix pays
at a higher price.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pydantic import Field

from fleet.documents import Frozen
from fleet.solvers import SolveStatus
from planner.explain.runner_up import type_names
from planner.explain.what_if import NEGLIGIBLE, WhatIf
from planner.problem import LimitKind, MixProblem
from planner.solve.solution import MixSolution

MAX_STEPS = 20  # three are common


class BreakEven(Frozen):
    """The price below which a GPU type is part of the cheapest mix."""

    gpu: str
    factor: float = Field(
        ge=0, le=1, description="Of its present prices; below it the type enters the plan.  0: not even at no price."
    )
    proven: bool = Field(description="Whether the type is proven to stay out at any higher price.")
    price_usd_per_h: float = Field(ge=0, description="Of one unit of its cheapest supply today.")
    supply: str


def break_evens(what_if: WhatIf, solution: MixSolution) -> tuple[BreakEven, ...]:
    """One per GPU type that the plan does not use, the one nearest to its present price first."""
    if solution.status is not SolveStatus.OPTIMAL or not what_if.problem.objective.counts_price:
        return ()
    found = list(_break_evens(what_if, solution))
    return tuple(sorted(found, key=lambda entry: -entry.factor))


def as_text(entry: BreakEven) -> str:
    name = f"{entry.gpu} is not used"
    if not entry.factor and entry.proven:
        return f"{name} and would not be for nothing either"
    if entry.factor >= 1 - NEGLIGIBLE:
        return f"{name}, yet costs no more: it would pay at any price below {entry.price_usd_per_h:.2f} $/h"
    price = f"{entry.factor * entry.price_usd_per_h:.2f} $/h instead of {entry.price_usd_per_h:.2f}"
    known = "" if entry.proven else " or already at a higher price, which was not worked out"
    return f"{name}; it would pay below {price} ({entry.supply}){known}"


def _break_evens(what_if: WhatIf, solution: MixSolution) -> Iterator[BreakEven]:
    problem = what_if.problem
    for gpu in sorted(set(type_names(problem))):
        options = [o for o, name in enumerate(type_names(problem)) if name == gpu]
        supplies = {problem.options[o].supply for o in options}
        if any(solution.units[f] for f in supplies) or not any(problem.supplies[f].price_usd_per_h for f in supplies):
            continue
        if (result := _factor(what_if, solution, supplies)) is not None:
            factor, proven = result
            cheapest = min((problem.supplies[f] for f in supplies), key=lambda supply: supply.price_usd_per_h)
            yield BreakEven(
                gpu=gpu,
                factor=factor,
                proven=proven,
                price_usd_per_h=cheapest.price_usd_per_h,
                supply=cheapest.name,
            )


def _factor(what_if: WhatIf, plan: MixSolution, supplies: set[int]) -> tuple[float, bool] | None:
    """The factor, and whether it is proven; None without any result in time."""
    objective_value, factor, has_result = plan.objective_value or 0.0, 0.0, False
    for _ in range(MAX_STEPS):
        result = what_if.solve(_at(what_if.problem, dict.fromkeys(supplies, factor)))
        if result is None or result.objective_value is None:
            break
        has_result = True
        spent = sum(result.units[f] * what_if.problem.supplies[f].price_usd_per_h for f in supplies)
        if objective_value - result.objective_value <= NEGLIGIBLE or spent <= 0:
            return min(factor, 1.0), result.status is SolveStatus.OPTIMAL
        factor = (objective_value - result.objective_value + factor * spent) / spent
    return (min(factor, 1.0), False) if has_result else None


def _at(problem: MixProblem, factors: Mapping[int, float]) -> MixProblem:
    """The problem with some prices multiplied, also in the budget."""
    supplies = tuple(
        replace(supply, price_usd_per_h=supply.price_usd_per_h * factors.get(f, 1.0))
        for f, supply in enumerate(problem.supplies)
    )
    limits = tuple(
        replace(limit, units={f: weight * factors.get(f, 1.0) for f, weight in limit.units.items()})
        if limit.kind is LimitKind.BUDGET
        else limit
        for limit in problem.limits
    )
    return replace(problem, supplies=supplies, limits=limits)
