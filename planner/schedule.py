"""A plan over time: the request's demand in periods, commitments, counts per period, and the saving."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace

from pydantic import Field

from fleet.demand import DemandSeries
from fleet.documents import Frozen, Violation, dotted
from fleet.errors import DocumentError, Problem
from fleet.offers import Market
from fleet.solvers import Limits, Solver, SolveStatus
from planner.horizon import CostSplit, HorizonPlan, HorizonProblem, PeriodPlan, Shortfall, shortfall, solve_horizon
from planner.objectives import COST
from planner.options.search import Candidate
from planner.policy import Horizon
from planner.problem import MixProblem
from planner.request import PlanRequest, Workload, bucket_names
from planner.rollout_planner import Count, named_counts

MIN_PER_H = 60.0
SECONDS_PER_HOUR = 3600.0
EVEN = 1e-6  # of a repeat: tolerance for steps in seconds
MIN_FACTOR = 1e-6  # of the peak: keeps the shares of a period without demand defined


class SchedulePeriod(Frozen):
    """One period."""

    start_h: float
    rate_rps: dict[str, float] = Field(description="Per workload.")
    running: tuple[Count, ...] = Field(description="Replicas that serve.")
    started: tuple[Count, ...] = Field(description="Replicas hired at its begin; they serve once warm.")
    stopped: tuple[Count, ...]
    routing: dict[str, dict[str, dict[str, float]]] = Field(description="Workload -> bucket -> route -> weight.")


class Schedule(Frozen):
    """The cheapest schedule found over the periods, and its proven bound.  All amounts are $ over the whole."""

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
    flat_usd: float | None = Field(default=None, description="Cost of the cheapest mix for the peak all the time.")
    saving: float | None = Field(default=None, description="Saving against flat_usd, as a share.")
    committed: dict[str, int] = Field(default_factory=dict, description="Reserved units by offer.")
    periods: tuple[SchedulePeriod, ...] = ()
    reason: str | None = None
    notes: tuple[str, ...] = Field(default=(), description="Limitations of the schedule.")


def plan_schedule(
    request: PlanRequest,
    candidates: Sequence[Candidate],
    problem: MixProblem,
    *,
    horizon: Horizon,
    solver: Solver,
    limits: Limits,
    clock_s: Callable[[], float],
) -> Schedule:
    """Solve the requested horizon for cost, whatever the objective of the single plan.

    Where the running replicas cannot serve until the first hired ones are warm, no plan from there serves every period.
    The periods then repeat, as without an initial state, and a note reports it.
    """
    _refuse_uneven(request)
    horizon_problem = _horizon_problem(request, candidates, problem, horizon)
    missing = shortfall(horizon_problem)
    if missing is not None:
        horizon_problem = replace(horizon_problem, initial=None)
    found = solve_horizon(horizon_problem, solver=solver, limits=limits, clock=clock_s)
    cost = found.cost
    return Schedule(
        status=found.status,
        period_h=horizon_problem.period_h,
        total_usd=None if cost is None else cost.total_usd,
        bound_usd=found.bound_usd if found.bound_usd < float("inf") else 0.0,
        gap=found.gap,
        **asdict(cost or CostSplit()),
        flat_usd=found.flat_usd,
        saving=found.saving,
        committed={problem.supplies[f].name: units for f, units in found.committed.items() if units},
        periods=tuple(_period(request, horizon_problem, found, t) for t in range(len(found.periods))),
        reason=found.reason,
        notes=tuple(_notes(request, problem, horizon_problem, missing)),
    )


def _refuse_uneven(request: PlanRequest) -> None:
    violations = list(uneven_series([workload.series for workload in request.workloads]))
    if violations:
        raise DocumentError(name="request", problems=[Problem(dotted(path), message) for path, message in violations])


def _notes(
    request: PlanRequest, problem: MixProblem, horizon_problem: HorizonProblem, missing: Shortfall | None
) -> Iterator[str]:
    if missing is not None:
        names = ", ".join(request.workloads[w].name for w in missing.loads) or "all workloads together"
        warm_h = missing.warm_from * horizon_problem.period_h
        yield (
            f"the running replicas do not serve {names} in period {missing.period + 1} of {horizon_problem.periods}, "
            f"and newly hired ones serve from hour {warm_h:g} on; planned as if the periods repeat"
        )
    if not problem.objective.counts_price:
        yield f"the periods are planned at the least cost, not for the goal {problem.objective} of the single plan"
    change = problem.change
    if change.max_started is not None or change.max_stopped is not None:
        yield "max_started and max_stopped apply to the step to the single plan, not between periods"
    if request.proof is not None:
        sized = any(load.utilisation != request.utilisation for load in problem.loads)
        yield "the mixes of single periods were not replayed" + (
            ", but planned with the utilisation from the replay of the single plan" if sized else ""
        )


def _horizon_problem(
    request: PlanRequest, candidates: Sequence[Candidate], problem: MixProblem, horizon: Horizon
) -> HorizonProblem:
    whole_s = longest_s([workload.series for workload in request.workloads])
    factors = [_factors(workload, horizon.periods, over_s=whole_s) for workload in request.workloads]
    markets = {
        option.supply: Market.ON_DEMAND if candidate.offer is None else candidate.offer.market
        for option, candidate in zip(problem.options, candidates, strict=True)
    }
    change = request.policy.change
    return HorizonProblem.scaled(
        replace(problem, objective=COST),
        list(zip(*factors, strict=True)),
        period_h=whole_s / horizon.periods / SECONDS_PER_HOUR,
        markets=tuple(markets[f] for f in range(len(problem.supplies))),
        warmup_h=(horizon.warm_up_min / MIN_PER_H,) * len(problem.options),
        start_usd=change.start_usd,
        stop_usd=change.stop_usd,
        initial=None if request.current is None else tuple(option.held for option in problem.options),
    )


def _factors(workload: Workload, periods: int, *, over_s: float) -> tuple[float, ...]:
    peak_rps = workload.planned_rps
    if workload.series is None or peak_rps == 0:
        return (1.0,) * periods
    rates_rps = highest_rates(workload.series, periods, over_s=over_s)
    return tuple(max(MIN_FACTOR, rate / peak_rps) for rate in rates_rps)


def _period(request: PlanRequest, horizon_problem: HorizonProblem, found: HorizonPlan, period: int) -> SchedulePeriod:
    plan = found.periods[period]

    def named(counts: Sequence[int]) -> tuple[Count, ...]:
        return named_counts(horizon_problem.base, dict(enumerate(counts)))

    return SchedulePeriod(
        start_h=period * horizon_problem.period_h,
        rate_rps={
            workload.name: sum(horizon_problem.rates_rps[period][w]) for w, workload in enumerate(request.workloads)
        },
        running=named(plan.ready),
        started=named(plan.started),
        stopped=named(plan.stopped),
        routing=_routing(request, horizon_problem.base, plan),
    )


def _routing(request: PlanRequest, base: MixProblem, plan: PeriodPlan) -> dict[str, dict[str, dict[str, float]]]:
    weights: dict[str, dict[str, dict[str, float]]] = {workload.name: {} for workload in request.workloads}
    for (r, b), share in plan.shares.items():
        way = base.routes[r]
        workload = request.workloads[way.load]
        weights[workload.name].setdefault(bucket_names(workload)[b], {})[way.name] = share
    return weights


def longest_s(series: Sequence[DemandSeries | None]) -> float:
    return max((one.duration_s for one in series if one is not None), default=0.0)


def uneven_series(series: Sequence[DemandSeries | None]) -> Iterator[Violation]:
    """Workloads whose series does not divide the longest: path and violation."""
    whole_s = longest_s(series)
    for position, one in enumerate(series):
        times = 1.0 if one is None else whole_s / one.duration_s
        if one is not None and abs(times - round(times)) > EVEN:
            message = f"lasts {one.duration_s:g} s beside {whole_s:g} s of another workload, expected a whole fraction"
            yield ("workloads", position, "demand"), f"{message} of that: a horizon repeats the shorter one"


def highest_rates(series: DemandSeries, periods: int, *, over_s: float | None = None) -> tuple[float, ...]:
    """Per period the highest rate of any step that overlaps it, which the plan must serve.

    The periods are equal parts of `over_s`, over which the series repeats; by default, of the series itself.
    """
    length_s = (series.duration_s if over_s is None else over_s) / periods
    steps = len(series.rates_rps)
    twice = series.rates_rps * 2  # a period shorter than the series may cross its end
    rates = []
    for period in range(periods):
        first = int(period * length_s / series.step_s + EVEN)
        last = int((period + 1) * length_s / series.step_s - EVEN)
        start = first % steps
        rates.append(max(twice[start : start + min(steps, max(1, last - first + 1))]))
    return tuple(rates)
