"""The planner's entry: from a request, catalogues and prices to a plan."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from math import inf, isfinite
from typing import TypeVar

from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from fleet.offers import Offer, PriceSheet
from fleet.solvers import Limits
from planner import report
from planner.answer import Allocation, Plan
from planner.explain.explanation import explain, premises
from planner.explain.what_if import SolveTime, WhatIf
from planner.hysteresis import keep_running
from planner.options.builder import candidates
from planner.options.expert_imbalance import spread_text
from planner.options.search import Candidate
from planner.policy import ExplainLevel, Horizon
from planner.problem_builder import build_problem
from planner.request import PlanRequest
from planner.rollout_report import RolloutReport, rollout_report
from planner.routing_weights import routing_weights
from planner.schedule import Schedule, plan_schedule
from planner.solve.solution import MixSolution
from planner.validation.slo_validation import SloValidator, ValidatedPlan, validation_in_words

T = TypeVar("T")


def plan(
    request: PlanRequest,
    *,
    gpus: GpuCatalogue,
    models: ModelCatalogue,
    prices: PriceSheet,
    now: datetime,
    clock_s: Callable[[], float],
) -> Plan:
    """The best mix for a request; `prices` is used where the request has no offers of its own.

    `now` dates the plan and the ages of its inputs; `clock_s` is a monotonic clock in seconds.  DocumentError names the
    parts of the request that cannot be planned.  An infeasible request is a plan without a mix.
    """
    offers = prices.offers if request.offers is None else request.offers
    found = candidates(request, gpus=gpus, models=models, offers=offers, profiles=request.profiles)
    what_if = WhatIf(
        problem=build_problem(request, found),
        solver=request.solver,
        limits=Limits(time_limit_s=request.time_limit_s, relative_gap=request.relative_gap),
        deadline_s=clock_s() + request.time_limit_s,
        clock_s=clock_s,
    )
    proven = _proven(request, found, what_if)
    solution = proven.solution
    schedule, schedule_s = None, 0.0
    if request.horizon is not None and solution.status.has_mix:
        schedule, schedule_s = _timed(partial(_schedule, request, found, proven, request.horizon, clock_s), clock_s)
    follow_up = replace(what_if.with_problem(proven.problem), deadline_s=inf, time=SolveTime())
    explained, explain_s = _timed(partial(explain, follow_up, request, found, solution), clock_s)
    spreads = report.expert_spreads(request, found, solution)
    lines = (
        *explained.lines,
        *validation_in_words(proven),
        *premises(request, found, left_out=_left_out(request, offers)),
        *(spread_text(spread, option) for options in spreads.values() for option, spread in options.items()),
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
        timetable=schedule,
        power_w=_total_w(allocation),
        allocation=allocation,
        hires=tuple(report.hires(what_if.problem, found, solution)),
        routing=routing_weights(request, what_if.problem, solution),
        throughput=report.throughputs(request, found, solution),
        experts=spreads,
        prices=explained.prices,
        power_domains=explained.power_domains,
        alternatives=explained.alternatives,
        runners_up=explained.runners_up,
        break_evens=explained.break_evens,
        conflicts=explained.conflicts,
        perfect=explained.perfect,
        explanation=() if request.policy.explain is ExplainLevel.NONE else lines,
        inputs=tuple(report.input_ages(request, found, now=now)),
        solver=request.solver,
        solve_s=what_if.time.total_s + schedule_s,
        explain_s=explain_s,
        planned_at=now,
    )


def _total_w(allocation: Sequence[Allocation]) -> float | None:
    known = [entry.power_w for entry in allocation if entry.power_w is not None]
    return sum(known) if len(known) == len(allocation) else None


def _timed(step: Callable[[], T], clock_s: Callable[[], float]) -> tuple[T, float]:
    started_s = clock_s()
    return step(), clock_s() - started_s


def _proven(request: PlanRequest, found: Sequence[Candidate], what_if: WhatIf) -> ValidatedPlan:
    """The best mix, or, with a replay, the best mix that the replay validates."""
    solution = keep_running(what_if.problem, what_if.cheapest(), within=request.policy.change.keep_within)
    if request.proof is None:
        return ValidatedPlan(what_if.problem, solution, ())
    return SloValidator.of(request, found, request.proof).validate(what_if, solution)


def _moves(request: PlanRequest, proven: ValidatedPlan) -> RolloutReport | None:
    if request.current is None or not proven.solution.status.has_mix:
        return None
    warm_up_min = (request.horizon or Horizon()).warm_up_min
    return rollout_report(proven.problem, target=proven.solution.replicas, warm_up_min=warm_up_min)


def _schedule(
    request: PlanRequest,
    found: Sequence[Candidate],
    proven: ValidatedPlan,
    how: Horizon,
    clock_s: Callable[[], float],
) -> Schedule:
    limits = Limits(time_limit_s=request.time_limit_s, relative_gap=request.relative_gap)
    return plan_schedule(request, found, proven.problem, how=how, solver=request.solver, limits=limits, clock_s=clock_s)


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
