"""Power domains in a plan: what each may draw, what it is planned to draw, and what one more kW of it would save.

The worth of a kW is the dual of the domain's row in the linear relaxation (docs/formulation.md), in fractions of
replicas, so that it says something between two whole ones too; `planner.explain.prices` asks for those.
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
    planned_w: float = Field(ge=0, description="Of the plan's replicas there, by the watts that they are counted with.")
    usd_per_kw_h: float | None = Field(
        description="What one more kW would save, $/h, in fractions of replicas; absent by other goals than cost."
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
    """By power domain; nothing where no mix holds, or time does not suffice to say."""
    relaxed = relaxation(problem, limits=limits)
    if relaxed is None:
        return {}
    prices: dict[str, float] = {}
    for position, limit in enumerate(problem.limits):
        if limit.kind is LimitKind.POWER:
            scale = max(1.0, *limit.replicas.values(), 0.0)  # of the row; see planner.solve.ilp.constraints.add_limit
            prices[limit.name] = relaxed.per_row.get(f"limit_{position}", 0.0) / scale * W_PER_KW
    return prices
