"""The planner's one entry: a request and what is known about the world in, a plan out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from math import isfinite

from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from fleet.offers import Offer, PriceSheet
from fleet.solvers import Limits
from planner import report
from planner.answer import Plan
from planner.explain.explanation import Explanation, explain, premises
from planner.explain.what_if import Inquiry
from planner.hysteresis import keep_running
from planner.options.builder import candidates
from planner.options.expert_imbalance import spread_in_words
from planner.options.search import Candidate
from planner.policy import Horizon
from planner.problem_builder import mix_problem
from planner.request import PlanRequest
from planner.rollout_report import RolloutReport, rollout_report
from planner.routing_weights import routing_weights
from planner.schedule import Schedule, plan_schedule
from planner.solve.solution import MixSolution
from planner.validation.slo_validation import SloValidator, ValidatedPlan, validation_in_words


def plan(
    request: PlanRequest,
    *,
    gpus: GpuCatalogue,
    models: ModelCatalogue,
    prices: PriceSheet,
    now: datetime,
    clock_s: Callable[[], float],
    questions: bool = True,
) -> Plan:
    """The cheapest mix for a request; `prices` serves where the request brings no offers of its own.

    `now` dates the answer and the ages of its inputs; `clock_s` is a monotonic clock in seconds that times the solving.
    Without `questions` the follow-up questions are left out, for sweeps over many requests.
    DocumentError names what in the request cannot be planned.  A request that the stock cannot serve is an answer.
    """
    started_s = clock_s()
    offers = prices.offers if request.offers is None else request.offers
    found = candidates(request, gpus=gpus, models=models, offers=offers, profiles=request.profiles)
    inquiry = Inquiry(
        problem=mix_problem(request, found),
        solver=request.solver,
        limits=Limits(time_limit_s=request.time_limit_s, relative_gap=request.relative_gap),
        deadline_s=clock_s() + request.time_limit_s,
        clock_s=clock_s,
    )
    proven = _proven(request, found, inquiry)
    solution = proven.solution
    follow_up = replace(inquiry.about(proven.problem), deadline_s=clock_s() + request.time_limit_s)
    told = explain(follow_up, request, found, solution) if questions else Explanation()
    spreads = report.expert_spreads(request, found, solution)
    lines = (
        *told.lines,
        *validation_in_words(proven),
        *premises(request, found, left_out=_left_out(request, offers)),
        *(spread_in_words(spread, option) for options in spreads.values() for option, spread in options.items()),
    )
    allocation = tuple(report.allocations(request, found, solution))
    return Plan(
        status=solution.status,
        cost_usd_per_h=solution.cost_usd_per_h,
        bound_usd_per_h=solution.bound if request.policy.goal.is_price_only and isfinite(solution.bound) else None,
        gap=_gap(solution),
        goal=request.policy.goal,
        goal_value=solution.objective_value,
        goal_bound=solution.bound if isfinite(solution.bound) else None,
        verified=proven.verified,
        proofs=proven.proofs,
        moves=_moves(request, proven),
        timetable=_timetable(request, found, proven, clock_s=clock_s),
        power_w=sum(entry.power_w for entry in allocation),
        allocation=allocation,
        hires=tuple(report.hires(inquiry.problem, found, solution)),
        routing=routing_weights(request, inquiry.problem, solution),
        throughput=report.throughputs(request, found, solution),
        experts=spreads,
        prices=told.prices,
        power_domains=told.power_domains,
        alternatives=told.alternatives,
        runners_up=told.runners_up,
        break_evens=told.break_evens,
        conflicts=told.conflicts,
        perfect=told.perfect,
        explanation=lines,
        inputs=tuple(report.input_ages(request, found, now=now)),
        solver=request.solver,
        solve_s=clock_s() - started_s,
        planned_at=now,
    )


def _proven(request: PlanRequest, found: Sequence[Candidate], inquiry: Inquiry) -> ValidatedPlan:
    """The best mix, or where it is to be proven the best whose replay holds."""
    solution = keep_running(inquiry.problem, inquiry.cheapest(), within=request.policy.change.keep_within)
    if request.proof is None:
        return ValidatedPlan(inquiry.problem, solution, ())
    return SloValidator.of(request, found, request.proof).validate(inquiry, solution)


def _moves(request: PlanRequest, proven: ValidatedPlan) -> RolloutReport | None:
    if request.current is None or not proven.solution.status.has_mix:
        return None
    warm_up_min = (request.horizon or Horizon()).warm_up_min
    return rollout_report(proven.problem, target=proven.solution.replicas, warm_up_min=warm_up_min)


def _timetable(
    request: PlanRequest, found: Sequence[Candidate], proven: ValidatedPlan, *, clock_s: Callable[[], float]
) -> Schedule | None:
    if request.horizon is None or not proven.solution.status.has_mix:
        return None
    limits = Limits(time_limit_s=request.time_limit_s, relative_gap=request.relative_gap)
    return plan_schedule(
        request,
        found,
        proven.problem,
        how=request.horizon,
        solver=request.solver,
        limits=limits,
        clock_s=clock_s,
    )


def _gap(solution: MixSolution) -> float | None:
    """How far the goal's value is from its bound, relative to the larger: what is least comes from below."""
    if solution.objective_value is None or not isfinite(solution.bound):
        return None
    larger = max(abs(solution.objective_value), abs(solution.bound))
    return abs(solution.objective_value - solution.bound) / larger if larger > 0 else 0.0


def _left_out(request: PlanRequest, offers: Iterable[Offer]) -> int:
    """How many offers a workload might have used, were it not for their market."""
    if all(workload.options is not None for workload in request.workloads):
        return 0
    return sum(offer.market not in request.markets for offer in offers)
