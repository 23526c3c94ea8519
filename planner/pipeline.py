"""The planner's entry: from a request, catalogues and prices to a plan."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from math import isfinite
from typing import TypeVar

from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from fleet.offers import Offer, PriceSheet
from fleet.solvers import MIN_RUN_S, Limits
from fleet.stock import Stock
from planner.engine_flags import ReplicaSettings, ServingEngine, engine_flags, replica_settings
from planner.explain.explanation import explain, premises
from planner.explain.what_if import UNFINISHED, SolveTime, WhatIf
from planner.options.builder import candidates
from planner.options.expert_imbalance import spread_text
from planner.options.search import Candidate
from planner.performance.coefficients import builtin_coefficients
from planner.policy import ExplainLevel, Horizon
from planner.problem import MixProblem
from planner.problem_builder import build_problem, routing_weights
from planner.request import PlanRequest
from planner.result import Allocation, Hire, InputAge, InputKind, Plan
from planner.rollout_planner import RolloutReport, rollout_report
from planner.schedule import plan_schedule
from planner.solve.fixed_counts import keep_running
from planner.solve.solution import MixSolution
from planner.stock import StockUse, offers_with_stock
from planner.throughput import ThroughputSource
from planner.time_limit import Phase, TimeLimit
from planner.validation.slo_validation import SloValidator, ValidatedPlan, validation_text

PREDICTED = {ThroughputSource.CALIBRATED, ThroughputSource.MEASURED_AND_CALIBRATED}
T = TypeVar("T")


def plan(
    request: PlanRequest,
    *,
    gpus: GpuCatalogue,
    models: ModelCatalogue,
    prices: PriceSheet,
    now: datetime,
    clock_s: Callable[[], float],
    stocks: Mapping[str, Stock] | None = None,
    report: Callable[[str, float | None], None] = lambda _phase, _share: None,
) -> Plan:
    """The best mix for a request; `prices` is used where the request has no offers of its own.

    `stocks` fill in the instances of offers that refer to one, by name.

    `now` dates the plan and the ages of its inputs; `clock_s` is a monotonic clock in seconds.  `report`
    receives each phase as it begins, with its finished share where that is known.  DocumentError names the
    parts of the request that cannot be planned.  An infeasible request is a plan without a mix.
    """
    offers, stock = offers_with_stock(
        prices.offers if request.offers is None else request.offers, stocks or {}, now=now
    )
    report("options", None)
    time_limit = TimeLimit.of(request, clock_s=clock_s)
    found = candidates(request, gpus=gpus, models=models, offers=offers, profiles=request.profiles)
    what_if = WhatIf(
        problem=build_problem(request, found),
        solver=request.solver,
        limits=Limits(time_limit_s=request.time_limit_s, relative_gap=request.relative_gap),
        deadline_s=time_limit.next_phase_ends_s(),
        clock_s=clock_s,
    )
    report("mix", None)
    first = what_if.cheapest()
    time_limit.ended(Phase.MIX, is_cut=what_if.time.is_cut)
    solution = keep_running(what_if.problem, first, within=request.policy.change.keep_within)
    proven = ValidatedPlan(what_if.problem, solution, ())
    if request.proof is not None:
        report("replay", None)
        what_if = replace(what_if, deadline_s=time_limit.next_phase_ends_s())
        proven = SloValidator.of(request, found, request.proof).validate(what_if, solution)
        time_limit.ended(Phase.REPLAY, is_cut=proven.is_cut)
    solution = proven.solution
    schedule, schedule_s = None, 0.0
    if request.horizon is not None and solution.status.has_mix:
        report("schedule", None)
        left_s = max(MIN_RUN_S, time_limit.next_phase_ends_s() - clock_s())
        periods = partial(
            plan_schedule,
            horizon=request.horizon,
            solver=request.solver,
            limits=replace(what_if.limits, time_limit_s=left_s),
            clock_s=clock_s,
        )
        schedule, schedule_s = _timed(partial(periods, request, found, proven.problem), clock_s)
        time_limit.ended(Phase.SCHEDULE, is_cut=schedule.status in UNFINISHED)
    report("explanation", None)
    follow_up = replace(what_if.with_problem(proven.problem), deadline_s=time_limit.ends_s, time=SolveTime())
    explained, explain_s = _timed(partial(explain, follow_up, request, found, solution), clock_s)
    time_limit.ended(Phase.EXPLANATION, is_cut=follow_up.time.is_cut)
    spreads = _of_used(request, found, solution, lambda candidate: candidate.spread)
    lines = (
        *explained.lines,
        *validation_text(proven),
        *stock_text(stock),
        *premises(request, found, left_out=_left_out(request, offers)),
        *(spread_text(spread, option) for options in spreads.values() for option, spread in options.items()),
    )
    allocation = tuple(allocations(request, found, solution))
    return Plan(
        status=solution.status,
        cost_usd_per_h=solution.cost_usd_per_h,
        bound_usd_per_h=solution.bound if request.policy.goal.is_price_only and isfinite(solution.bound) else None,
        gap=_gap(solution),
        goal=request.policy.goal,
        goal_value=solution.objective_value,
        goal_bound=solution.bound if isfinite(solution.bound) else None,
        cut=tuple(time_limit.cut),
        verified=proven.verified,
        proofs=proven.proofs,
        moves=_moves(request, proven),
        timetable=schedule,
        power_w=_total_w(allocation),
        allocation=allocation,
        hires=tuple(hires(what_if.problem, found, solution)),
        routing=routing_weights(request, what_if.problem, solution),
        throughput=_of_used(request, found, solution, lambda candidate: candidate.throughput),
        experts={workload: options for workload, options in spreads.items() if options},
        prices=explained.prices,
        power_domains=explained.power_domains,
        alternatives=explained.alternatives,
        runners_up=explained.runners_up,
        break_evens=explained.break_evens,
        conflicts=explained.conflicts,
        perfect=explained.perfect,
        explanation=() if request.policy.explain is ExplainLevel.NONE else lines,
        inputs=tuple(input_ages(request, found, now=now)),
        stock=stock,
        solver=request.solver,
        solve_s=what_if.time.total_s + schedule_s,
        explain_s=explain_s,
        planned_at=now,
    )


def stock_text(uses: Iterable[StockUse]) -> Iterator[str]:
    yield from (f"stale: {use}; this plan is not applied" for use in uses if use.stale)


def _total_w(allocation: Sequence[Allocation]) -> float | None:
    known = [entry.power_w for entry in allocation if entry.power_w is not None]
    return sum(known) if len(known) == len(allocation) else None


def _timed(step: Callable[[], T], clock_s: Callable[[], float]) -> tuple[T, float]:
    started_s = clock_s()
    return step(), clock_s() - started_s


def _moves(request: PlanRequest, proven: ValidatedPlan) -> RolloutReport | None:
    if request.current is None or not proven.solution.status.has_mix:
        return None
    warm_up_min = (request.horizon or Horizon()).warm_up_min
    return rollout_report(proven.problem, target=proven.solution.replicas, warm_up_min=warm_up_min)


def _gap(solution: MixSolution) -> float | None:
    """The distance of the value from its bound, relative to the larger of both."""
    if solution.objective_value is None or not isfinite(solution.bound):
        return None
    larger = max(abs(solution.objective_value), abs(solution.bound))
    return abs(solution.objective_value - solution.bound) / larger if larger > 0 else 0.0


def _left_out(request: PlanRequest, offers: Iterable[Offer]) -> int:
    """Offers that no workload may use because of their market."""
    if all(workload.options is not None for workload in request.workloads):
        return 0
    return sum(offer.market not in request.markets for offer in offers)


def allocations(request: PlanRequest, candidates: Sequence[Candidate], solution: MixSolution) -> Iterator[Allocation]:
    for candidate, count, busy in zip(candidates, solution.replicas, solution.busy, strict=True):
        if count:
            settings = _settings(request, candidate)
            yield Allocation(
                workload=request.workloads[candidate.workload].name,
                option=candidate.name,
                gpu=candidate.gpu_name,
                count=count,
                gpus_per_replica=candidate.gpus,
                clock=None if candidate.shape is None else candidate.shape.clock,
                offer=candidate.offer.id if candidate.offer is not None else None,
                busy=busy / count,
                power_w=None if candidate.power is None else candidate.power.planned_busy_w * count,
                settings=settings,
                engine_flags={} if settings is None else {each: engine_flags(settings, each) for each in ServingEngine},
            )


def _settings(request: PlanRequest, candidate: Candidate) -> ReplicaSettings | None:
    """How the engine of an option must run; None for an option that the request gives."""
    if candidate.shape is None or candidate.model is None or candidate.gpu is None:
        return None
    workload = request.workloads[candidate.workload]
    rates_rps = (rate_rps for row in candidate.throughput.max_rps for rate_rps in row)
    edges = (bucket.edge for bucket in workload.buckets.buckets())
    served = [sum(edge) for edge, rate_rps in zip(edges, rates_rps, strict=True) if rate_rps > 0]
    return replica_settings(
        candidate.shape,
        model=candidate.model,
        named=workload.model,
        gpu=candidate.gpu,
        max_context_tokens=max(served),
    )


def hires(problem: MixProblem, candidates: Sequence[Candidate], solution: MixSolution) -> Iterator[Hire]:
    offers = {option.supply: candidate.offer for option, candidate in zip(problem.options, candidates, strict=True)}
    for f, (supply, units) in enumerate(zip(problem.supplies, solution.units, strict=True)):
        if units:
            offer = offers[f]
            yield Hire(
                name=supply.name,
                offer=None if offer is None else offer.id,
                units=units,
                gpus_per_unit=None if offer is None else offer.gpus_per_instance,
                price_usd_per_h=supply.price_usd_per_h,
                cost_usd_per_h=round(supply.price_usd_per_h * units, 9),
            )


def _of_used(
    request: PlanRequest, candidates: Sequence[Candidate], solution: MixSolution, part: Callable[[Candidate], T | None]
) -> dict[str, dict[str, T]]:
    """Workload -> option in use -> this part of it, if it has one."""
    found: dict[str, dict[str, T]] = {workload.name: {} for workload in request.workloads}
    for candidate, count in zip(candidates, solution.replicas, strict=True):
        if count and (value := part(candidate)) is not None:
            found[request.workloads[candidate.workload].name][candidate.name] = value
    return found


def input_ages(request: PlanRequest, candidates: Sequence[Candidate], *, now: datetime) -> Iterator[InputAge]:
    """The inputs behind these options, each once: sizes, prices, data sheets, models, and the sources of rates."""
    today = now.date()
    for workload in request.workloads:
        yield InputAge(kind="sizes", name=workload.name, as_of=None, age_days=None, source=workload.sizes.note)
    priced = {(candidate.offer is None, candidate.supply.name): candidate for candidate in candidates}.values()
    for candidate in priced:
        offer = candidate.offer
        if offer is None:
            yield InputAge(kind="price", name=candidate.supply.name, as_of=None, age_days=None, source="the request")
        else:
            yield _dated("price", offer.id, offer.as_of, offer.source, today=today)
    for gpu in {candidate.gpu.name: candidate.gpu for candidate in candidates if candidate.gpu is not None}.values():
        yield _dated("gpu", gpu.name, gpu.date, gpu.source, today=today)
    for model in {c.model.name: c.model for c in candidates if c.model is not None}.values():
        yield _dated("model", model.name, model.date, model.source, today=today)
    if any(candidate.throughput.provenance in PREDICTED for candidate in candidates):
        fit = builtin_coefficients()
        yield _dated("performance", "coefficients", fit.fitted, fit.source, today=today)
    yield from _measurements(request, today=today)


def _measurements(request: PlanRequest, *, today: date) -> Iterator[InputAge]:
    points = () if request.profiles is None else request.profiles.points
    for source in dict.fromkeys(point.source for point in points):
        dates = [point.date for point in points if point.source == source and point.date is not None]
        yield _dated("profiles", source or "not stated", min(dates, default=None), source, today=today)


def _dated(
    kind: InputKind,
    name: str,
    as_of: date | None,
    source: str | None,
    *,
    today: date,
) -> InputAge:
    """A date in the future, as from another time zone, has age 0."""
    age_days = None if as_of is None else max(0, (today - as_of).days)
    return InputAge(kind=kind, name=name, as_of=as_of, age_days=age_days, source=source)
