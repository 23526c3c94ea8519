"""The least relaxation of one requirement that makes a problem feasible, with all others unchanged."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, inf, isfinite

from pydantic import Field

from fleet.documents import Frozen
from fleet.solvers import SolveStatus
from planner.explain.constraints import Kind, Requirement
from planner.explain.what_if import OutOfTimeError, WhatIf
from planner.objectives import COST, ENERGY
from planner.problem import Limit, MixProblem

ROUNDING = 1e-6  # of a number of grains
COARSE = 100  # grains of a step, for limits without a grain that no single solve minimises


class LeastRelaxation(Frozen):
    """The least relaxation of one requirement."""

    kind: Kind
    requirement: str
    amount: float | None = Field(description="In the requirement's own unit; absent if it cannot hold in part.")
    easing: str = Field(description="The same as text.")
    least: bool = Field(description="Whether a smaller amount is proven not to suffice.")


def least_relaxations(
    what_if: WhatIf, problem: MixProblem, members: Sequence[Requirement]
) -> Iterator[LeastRelaxation]:
    """One per requirement that resolves the conflict alone; those without a result in time are left out."""
    for part in members:
        try:
            found = _least(what_if, problem, part)
        except OutOfTimeError:
            continue
        if found is not None:
            amount, least = found
            yield LeastRelaxation(
                kind=part.kind,
                requirement=part.name,
                amount=amount if isfinite(amount) else None,
                easing=part.easing(amount),
                least=least,
            )


def _least(what_if: WhatIf, problem: MixProblem, part: Requirement) -> tuple[float, bool] | None:
    """The least amount, and whether it is proven.  None: dropping the requirement does not suffice.

    One solve minimises what a power limit or budget counts; other requirements are bisected.
    """
    if (aimed := _aimed_at(problem, part)) is not None:
        answer = what_if.solve(aimed)
        if answer is None:
            raise OutOfTimeError
        if answer.objective_value is None:
            return None
        excess = answer.objective_value - problem.limits[part.position].at_most
        return max(excess, 0.0), answer.status is SolveStatus.OPTIMAL
    if not _holds(what_if, part.dropped(problem)):
        return None
    if not isfinite(part.grain):
        return inf, True
    grain = part.grain or part.step / COARSE
    low, high = 0, ceil(part.most / grain - ROUNDING) if isfinite(part.most) else 1
    while not isfinite(part.most) and not _holds(what_if, part.ease(problem, high * grain)):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _holds(what_if, part.ease(problem, middle * grain)) else (middle, high)
    return min(high * grain, part.most), True


def _holds(what_if: WhatIf, problem: MixProblem) -> bool:
    answer = what_if.any_mix(problem)
    if answer is None:
        raise OutOfTimeError
    return answer.status.has_mix


def _aimed_at(problem: MixProblem, part: Requirement) -> MixProblem | None:
    """The problem without a limit, with an objective that minimises what the limit counts."""
    if part.kind not in {Kind.POWER, Kind.BUDGET}:
        return None
    limit = problem.limits[part.position]
    weights = [*limit.units.values(), *limit.replicas.values()]
    if (limit.units and limit.replicas) or min(weights, default=-1.0) < 0:
        return None
    dropped = part.dropped(problem)
    return _counting_units(dropped, limit) if limit.units else _counting_replicas(dropped, limit)


def _counting_units(problem: MixProblem, limit: Limit) -> MixProblem:
    supplies = (replace(supply, price_usd_per_h=limit.units.get(f, 0.0)) for f, supply in enumerate(problem.supplies))
    return replace(problem, supplies=tuple(supplies), objective=COST)


def _counting_replicas(problem: MixProblem, limit: Limit) -> MixProblem:
    options = (
        replace(option, idle_w=limit.replicas.get(o, 0.0), busy_w=0.0) for o, option in enumerate(problem.options)
    )
    return replace(problem, options=tuple(options), objective=ENERGY)
