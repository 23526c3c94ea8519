"""The planner's one entry: a request and what is known about the world in, a plan out."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from math import isfinite

from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from fleet.offers import Offer, PriceSheet
from planner import explanation, report
from planner.alternatives import in_words, single_gpu_plans
from planner.answer import Plan
from planner.assembly import mix_problem
from planner.mix import MixSolution
from planner.options import candidates
from planner.questions import Inquiry
from planner.request import PlanRequest
from planner.solvers import Limits, SolveStatus


def plan(
    request: PlanRequest,
    *,
    gpus: GpuCatalogue,
    models: ModelCatalogue,
    prices: PriceSheet,
    now: datetime,
    clock_s: Callable[[], float],
    explain: bool = True,
) -> Plan:
    """The cheapest mix for a request; `prices` serves where the request brings no offers of its own.

    `now` dates the answer and the ages of its inputs; `clock_s` is a monotonic clock in seconds that times the solving.
    Without `explain` the follow-up questions are left out, for sweeps over many requests.
    DocumentError names what in the request cannot be planned.  A request that the stock cannot serve is an answer.
    """
    started_s = clock_s()
    offers = prices.offers if request.offers is None else request.offers
    found = candidates(request, gpus=gpus, models=models, offers=offers)
    inquiry = Inquiry(
        problem=mix_problem(request, found),
        solver=request.solver,
        limits=Limits(time_limit_s=request.time_limit_s, relative_gap=request.relative_gap),
        deadline_s=clock_s() + request.time_limit_s,
        clock_s=clock_s,
    )
    solution = inquiry.cheapest()
    others = tuple(single_gpu_plans(inquiry, request, solution)) if explain else ()
    lines = (
        *(_verdict(inquiry, request, solution) if explain else ()),
        *map(in_words, others),
        *explanation.premises(request, found, left_out=_left_out(request, offers)),
    )
    allocation = tuple(report.allocations(request, found, solution))
    return Plan(
        status=solution.status,
        cost_usd_per_h=solution.cost_usd_per_h,
        bound_usd_per_h=solution.bound if isfinite(solution.bound) else None,
        gap=_gap(solution),
        power_w=sum(entry.power_w for entry in allocation),
        allocation=allocation,
        hires=tuple(report.hires(inquiry.problem, found, solution)),
        routing=report.routing(request, inquiry.problem, solution),
        throughput=report.throughputs(request, found, solution),
        alternatives=others,
        explanation=lines,
        inputs=tuple(report.input_ages(found, now=now)),
        solver=request.solver,
        solve_s=clock_s() - started_s,
        planned_at=now,
    )


def _verdict(inquiry: Inquiry, request: PlanRequest, solution: MixSolution) -> Iterator[str]:
    yield explanation.summary(inquiry.problem, solution)
    if solution.status is SolveStatus.INFEASIBLE:
        yield from explanation.shortage(inquiry.problem, request, inquiry.shortage())
    else:
        yield from explanation.exhausted_stock(inquiry, solution)


def _gap(solution: MixSolution) -> float | None:
    if solution.cost_usd_per_h is None:
        return None
    excess_usd_per_h = solution.cost_usd_per_h - solution.bound
    return excess_usd_per_h / solution.cost_usd_per_h if excess_usd_per_h > 0 else 0.0


def _left_out(request: PlanRequest, offers: Iterable[Offer]) -> int:
    """How many offers a workload might have used, were it not for their market."""
    if all(workload.options is not None for workload in request.workloads):
        return 0
    return sum(offer.market not in request.markets for offer in offers)
