"""Power domains of a plan: limit, planned power, and the value of one more kW.

The value of a kW is the dual of the domain's row in the LP relaxation (docs/explanation/planner/formulation.md), in
fractional replicas.  `planner.explain.prices` has the value of a whole step.
"""

from collections.abc import Mapping

from pydantic import Field

from fleet.documents import Frozen
from fleet.solvers import Limits
from planner.explain.shadow_prices import relaxation
from planner.problem import LimitKind, MixProblem
from planner.solve.solution import MixSolution

W_PER_KW = 1000.0


class DomainWatts(Frozen):
    """One power domain in a plan."""

    name: str
    limit_w: float
    planned_w: float = Field(ge=0, description="Of the plan's replicas in this domain, as the limit counts them.")
    usd_per_kw_h: float | None = Field(
        description="Saving of one more kW, $/h, in fractional replicas; absent for objectives other than cost."
    )


def domain_watts(problem: MixProblem, solution: MixSolution, *, limits: Limits) -> tuple[DomainWatts, ...]:
    """One per power domain, in the request's order."""
    domains = [limit for limit in problem.limits if limit.kind is LimitKind.POWER]
    if not domains or not solution.status.has_mix:
        return ()
    worth = usd_per_kw_h(problem, limits=limits) if problem.objective.counts_price else {}
    return tuple(
        DomainWatts(
            name=limit.name,
            limit_w=limit.at_most,
            planned_w=sum(w * solution.replicas[o] for o, w in limit.replicas.items()),
            usd_per_kw_h=worth.get(limit.name),
        )
        for limit in domains
    )


def usd_per_kw_h(problem: MixProblem, *, limits: Limits) -> Mapping[str, float]:
    """By power domain; empty without a feasible mix or without a result in time."""
    relaxed = relaxation(problem, limits=limits)
    if relaxed is None:
        return {}
    prices: dict[str, float] = {}
    for position, limit in enumerate(problem.limits):
        if limit.kind is LimitKind.POWER:
            scale = max(1.0, *limit.replicas.values(), 0.0)  # of the row, see add_limit
            prices[limit.name] = relaxed.per_row.get(f"limit_{position}", 0.0) / scale * W_PER_KW
    return prices
