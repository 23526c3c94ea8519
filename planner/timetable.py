"""A plan over time: the request's demand in periods, what to commit to, what to run when, and what that saves."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import Field

from fleet.demand import DemandSeries
from fleet.documents import Frozen
from fleet.offers import Market as OfferMarket
from planner.horizon import HorizonPlan, HorizonProblem, Market, PeriodPlan, solve_horizon
from planner.policy import Horizon
from planner.problem import Goal, MixProblem
from planner.request import PlanRequest, Workload, bucket_names
from planner.search import Candidate
from planner.solvers import Limits, Solver, SolveStatus

MIN_PER_H = 60.0
SECONDS_PER_HOUR = 3600.0
MARKETS = {
    OfferMarket.RESERVED: Market.RESERVED,
    OfferMarket.ON_DEMAND: Market.ON_DEMAND,
    OfferMarket.SPOT: Market.SPOT,
    OfferMarket.OWNED: Market.OWNED,
}
LEAST_FACTOR = 1e-6  # of the peak: a period without any demand keeps its shares defined


class TimetablePeriod(Frozen):
    """One period."""

    start_h: float
    rate_rps: dict[str, float] = Field(description="Per workload.")
    running: dict[str, int] = Field(description="Option -> replicas that serve.")
    started: dict[str, int] = Field(description="Option -> replicas hired at its begin; they serve once warm.")
    stopped: dict[str, int]
    routing: dict[str, dict[str, dict[str, float]]] = Field(description="Workload -> bucket -> route -> weight.")


class Timetable(Frozen):
    """The cheapest way through the periods that was found, and what is proven about it.  All in $ over the whole."""

    status: SolveStatus
    period_h: float
    total_usd: float | None = None
    bound_usd: float
    gap: float | None = None
    reserved_usd: float = 0.0
    on_demand_usd: float = 0.0
    spot_usd: float = 0.0
    owned_usd: float = 0.0
    switching_usd: float = 0.0
    flat_usd: float | None = Field(default=None, description="What the cheapest mix for the peak costs all the time.")
    saving: float | None = Field(default=None, description="Against that, as a share.")
    committed: dict[str, int] = Field(default_factory=dict, description="Reserved units by offer.")
    periods: tuple[TimetablePeriod, ...] = ()
    reason: str | None = None


def timetable(
    request: PlanRequest,
    candidates: Sequence[Candidate],
    problem: MixProblem,
    *,
    how: Horizon,
    solver: Solver,
    limits: Limits,
    clock_s: Callable[[], float],
) -> Timetable:
    """Solve the horizon that a request asks for, at $ whatever the goal of its single plan."""
    asked = _horizon_problem(request, candidates, problem, how)
    found = solve_horizon(asked, solver=solver, limits=limits, clock=clock_s)
    cost = found.cost
    return Timetable(
        status=found.status,
        period_h=asked.period_h,
        total_usd=None if cost is None else cost.total_usd,
        bound_usd=found.bound_usd if found.bound_usd < float("inf") else 0.0,
        gap=found.gap,
        reserved_usd=cost.reserved_usd if cost else 0.0,
        on_demand_usd=cost.on_demand_usd if cost else 0.0,
        spot_usd=cost.spot_usd if cost else 0.0,
        owned_usd=cost.owned_usd if cost else 0.0,
        switching_usd=cost.switching_usd if cost else 0.0,
        flat_usd=found.flat_usd,
        saving=found.saving,
        committed={problem.supplies[f].name: units for f, units in found.committed.items() if units},
        periods=tuple(_period(request, asked, found, t) for t in range(len(found.periods))),
        reason=found.reason,
    )


def highest_rates(series: DemandSeries, periods: int) -> tuple[float, ...]:
    """Per period the highest rate of any step that reaches into it: what must be served, not what is to be expected."""
    length_s = series.duration_s / periods
    rates = []
    for period in range(periods):
        first = int(period * length_s / series.step_s + 1e-9)
        last = int((period + 1) * length_s / series.step_s - 1e-9)
        rates.append(max(series.rates_rps[first : last + 1]))
    return tuple(rates)


def _horizon_problem(
    request: PlanRequest, candidates: Sequence[Candidate], problem: MixProblem, how: Horizon
) -> HorizonProblem:
    longest_s = max(one.series.duration_s for one in request.workloads if one.series is not None)
    factors = [_factors(workload, how.periods) for workload in request.workloads]
    markets = {option.supply: _market(candidate) for option, candidate in zip(problem.options, candidates, strict=True)}
    change = request.policy.change
    return HorizonProblem.scaled(
        _at_cost(problem),
        list(zip(*factors, strict=True)),
        period_h=longest_s / how.periods / SECONDS_PER_HOUR,
        markets=tuple(markets[f] for f in range(len(problem.supplies))),
        warmup_h=(how.warm_up_min / MIN_PER_H,) * len(problem.options),
        start_usd=change.start_usd,
        stop_usd=change.stop_usd,
        initial=None if request.current is None else tuple(option.held for option in problem.options),
    )


def _at_cost(problem: MixProblem) -> MixProblem:
    return replace(problem, goal=Goal.COST)


def _factors(workload: Workload, periods: int) -> tuple[float, ...]:
    """Of the planned rate, per period."""
    peak_rps = workload.planned_rps
    if workload.series is None or peak_rps == 0:
        return (1.0,) * periods
    return tuple(max(LEAST_FACTOR, rate / peak_rps) for rate in highest_rates(workload.series, periods))


def _market(candidate: Candidate) -> Market:
    return Market.ON_DEMAND if candidate.offer is None else MARKETS[candidate.offer.market]


def _period(request: PlanRequest, asked: HorizonProblem, found: HorizonPlan, period: int) -> TimetablePeriod:
    plan = found.periods[period]

    def named(counts: Sequence[int]) -> dict[str, int]:
        return {option.name: n for option, n in zip(asked.base.options, counts, strict=True) if n}

    return TimetablePeriod(
        start_h=period * asked.period_h,
        rate_rps={workload.name: sum(asked.rates_rps[period][w]) for w, workload in enumerate(request.workloads)},
        running=named(plan.ready),
        started=named(plan.started),
        stopped=named(plan.stopped),
        routing=_routing(request, asked.base, plan),
    )


def _routing(request: PlanRequest, base: MixProblem, plan: PeriodPlan) -> dict[str, dict[str, dict[str, float]]]:
    weights: dict[str, dict[str, dict[str, float]]] = {workload.name: {} for workload in request.workloads}
    for (r, b), share in plan.shares.items():
        way = base.routes[r]
        workload = request.workloads[way.load]
        weights[workload.name].setdefault(bucket_names(workload)[b], {})[way.name] = share
    return weights
