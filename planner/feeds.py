"""Where the planner meets the power tree: its feeds become power domains, and what a watt is worth goes back.

The planner counts replicas by the watts that nine of ten models stay under; a feed carries more of those than its limit
says, as not all peak at once and clocks may go down.  `power.caps.effective_limits` says how much more.
"""

from collections.abc import Iterable, Mapping, Sequence

from fleet.documents import RuleError
from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from fleet.offers import Offer
from fleet.solvers import Limits
from planner.assembly import mix_problem
from planner.ilp import relaxation
from planner.policy import PowerDomain
from planner.problem import Goal, LimitKind
from planner.replicas.options import candidates
from planner.request import PlanRequest
from power.caps import EffectiveLimit

W_PER_KW = 1000.0
IN_USD = (Goal.COST, Goal.SWITCHING)


def power_domains(
    limits: Iterable[EffectiveLimit], *, members: Mapping[str, Sequence[str]] | None = None
) -> tuple[PowerDomain, ...]:
    """One per feed; `members` says which offers stand on which feed, and only feeds named there are taken."""
    if members is None:
        return tuple(PowerDomain(name=limit.feed, limit_w=limit.limit_w) for limit in limits)
    known = {limit.feed: limit for limit in limits}
    RuleError.raise_for((("members", feed), "is no feed of the plan") for feed in members if feed not in known)
    return tuple(
        PowerDomain(name=feed, limit_w=known[feed].limit_w, members=tuple(offers)) for feed, offers in members.items()
    )


def usd_per_kw_h(
    request: PlanRequest,
    *,
    gpus: GpuCatalogue,
    models: ModelCatalogue,
    offers: tuple[Offer, ...],
    limits: Limits | None = None,
) -> dict[str, float]:
    """What one more kW of each power domain would save, in $/h: its shadow price, in fractions of replicas.

    Nothing where the request holds for no mix, or time does not suffice to say.
    """
    if request.policy.goal not in IN_USD:
        raise RuleError(
            [(("policy", "goal"), f"must be {' or '.join(IN_USD)} to price watts, got {request.policy.goal}")]
        )
    found = candidates(request, gpus=gpus, models=models, offers=offers, profiles=request.profiles)
    problem = mix_problem(request, found)
    relaxed = relaxation(problem, limits=limits or Limits(time_limit_s=request.time_limit_s))
    if relaxed is None:
        return {}
    prices: dict[str, float] = {}
    for position, limit in enumerate(problem.limits):
        if limit.kind is LimitKind.POWER:
            scale = max(1.0, *limit.replicas.values(), 0.0)  # of the row; see planner.ilp.constraints.add_limit
            prices[limit.name] = relaxed.per_row.get(f"limit_{position}", 0.0) / scale * W_PER_KW
    return prices
