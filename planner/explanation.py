"""The plan in words: how good it is, what limits it, what it takes for granted, what is missing when nothing holds."""

from collections.abc import Iterator, Sequence

from planner.mix import MixSolution
from planner.problem import MixProblem
from planner.questions import Inquiry, Shortage
from planner.request import PlanRequest, bucket_names
from planner.search import Candidate
from planner.solvers import SolveStatus
from planner.throughput import Provenance

NEGLIGIBLE_USD_PER_H = 1e-6
NOT_WORKED_OUT = "was not worked out: the time limit struck"


def summary(problem: MixProblem, solution: MixSolution) -> str:
    """What to run, at what price, and what is proven about it."""
    if solution.status is SolveStatus.INFEASIBLE:
        return "the demand cannot be served with the stock there is (proven)"
    if solution.cost_usd_per_h is None:
        return "the time limit struck before any mix was found: allow more time"
    running = ", ".join(
        f"{count} x {option.name} for {_served_by(problem, o)}"
        for o, (option, count) in enumerate(zip(problem.options, solution.replicas, strict=True))
        if count
    )
    price = f"{running or 'nothing to run'}: {solution.cost_usd_per_h:.2f} $/h"
    excess = solution.cost_usd_per_h - solution.bound
    if excess <= NEGLIGIBLE_USD_PER_H:
        return f"{price}; nothing cheaper exists (proven)"
    return f"{price}; at most {excess:.2f} $/h ({excess / solution.cost_usd_per_h:.2%}) above the cheapest possible"


def exhausted_stock(inquiry: Inquiry, solution: MixSolution) -> Iterator[str]:
    """Each supply of which nothing is left, and what one more unit would save."""
    for f, (supply, units) in enumerate(zip(inquiry.problem.supplies, solution.units, strict=True)):
        if units and units == supply.available:
            worth = _worth(inquiry.with_one_more(f), solution)
            yield f"the stock of {supply.name} ({units}) is used up; {worth}"


def shortage(problem: MixProblem, request: PlanRequest, missing: Shortage | None) -> Iterator[str]:
    """Which stock is short by how much, and which buckets go unserved for it."""
    if missing is None:
        yield f"what is missing {NOT_WORKED_OUT}"
        return
    for supply, extra in zip(problem.supplies, missing.extra_units, strict=True):
        if extra:
            yield f"{supply.name}: {supply.available} can be had, {extra} more would do; fewer GPUs would not"
    for (w, b), unserved_rps in missing.unserved_rps.items():
        workload, demand_rps = request.workloads[w], problem.loads[w].rate_rps[b]
        bucket = bucket_names(workload)[b]
        unserved = f"{unserved_rps:.4g} of {demand_rps:.4g} rps"
        yield f"{workload.name}, bucket {bucket}: {unserved} stay unserved when the stock serves as much as it can"
    for load in problem.loads:
        if load.min_replicas and not missing.unserved_rps:
            yield f"{load.name} asks for at least {load.min_replicas} replicas"


def premises(request: PlanRequest, chosen: Sequence[Candidate], *, left_out: int) -> Iterator[str]:
    """What the plan takes for granted."""
    for workload in request.workloads:
        if workload.demand is not None:
            yield f"{workload.name} is planned at its peak of {workload.planned_rps:g} rps"
        if workload.planned_rps == 0:
            yield f"{workload.name} has no demand and gets only the replicas it requires ({workload.min_replicas})"
    if any(candidate.throughput.provenance is Provenance.ROOFLINE for candidate in chosen):
        yield "rates come from an uncalibrated roofline at mean latency: measure them before relying on the plan"
    if left_out:
        yield f"offers left out for their market: {left_out}; `markets` says which to use"


def _served_by(problem: MixProblem, option: int) -> str:
    loads = {route.load for route in problem.routes if any(leg.option == option for leg in route.legs)}
    return " and ".join(problem.loads[w].name for w in sorted(loads))


def _worth(answer: MixSolution | None, solution: MixSolution) -> str:
    if answer is None or answer.cost_usd_per_h is None or solution.cost_usd_per_h is None:
        return f"what one more is worth {NOT_WORKED_OUT}"
    saved_usd_per_h = solution.cost_usd_per_h - answer.cost_usd_per_h
    if saved_usd_per_h <= NEGLIGIBLE_USD_PER_H:
        return "one more would save nothing"
    return f"one more would save {saved_usd_per_h:.2f} $/h"
