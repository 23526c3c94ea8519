"""Why not only X: for each GPU type among the options, the cheapest plan on that type alone."""

from collections.abc import Iterator, Sequence

from planner.answer import Alternative
from planner.explanation import NEGLIGIBLE_USD_PER_H
from planner.mix import MixSolution
from planner.problem import MixProblem
from planner.questions import Inquiry
from planner.request import PlanRequest, bucket_names
from planner.solvers import SolveStatus


def single_gpu_plans(inquiry: Inquiry, request: PlanRequest, solution: MixSolution) -> list[Alternative]:
    """One per GPU type, cheapest first; none where there is no mix to compare with, or but one type."""
    found = list(_single_gpu_plans(inquiry, request, solution))
    return sorted(
        found, key=lambda alternative: (alternative.cost_usd_per_h is None, alternative.cost_usd_per_h or 0.0)
    )


def in_words(alternative: Alternative) -> str:
    """One line of the explanation."""
    if alternative.cost_usd_per_h is None or alternative.extra_usd_per_h is None:
        return f"only {alternative.gpu}: {alternative.reason}"
    cost, extra = alternative.cost_usd_per_h, alternative.extra_usd_per_h
    if abs(extra) <= NEGLIGIBLE_USD_PER_H:
        return f"only {alternative.gpu}: {cost:.2f} $/h, the same"
    base = cost - extra
    relative = f" ({extra / base:.0%})" if base > 0 else ""
    return f"only {alternative.gpu}: {cost:.2f} $/h, {extra:.2f} $/h{relative} more"


def _single_gpu_plans(inquiry: Inquiry, request: PlanRequest, solution: MixSolution) -> Iterator[Alternative]:
    types = sorted({option.gpu for option in inquiry.problem.options}) if solution.status.has_mix else []
    for gpu in types if len(types) > 1 else ():
        routes = _routes_on(inquiry.problem, gpu)
        if obstacle := _obstacle(inquiry.problem, request, routes):
            yield Alternative(gpu=gpu, status=SolveStatus.INFEASIBLE, reason=obstacle)
        else:
            yield _priced(gpu, inquiry.only(routes), solution)


def _priced(gpu: str, answer: MixSolution | None, solution: MixSolution) -> Alternative:
    if answer is None or answer.status is SolveStatus.TIME_LIMIT:
        return Alternative(gpu=gpu, status=SolveStatus.TIME_LIMIT, reason="not compared, the time limit struck")
    if answer.cost_usd_per_h is None or solution.cost_usd_per_h is None:
        return Alternative(gpu=gpu, status=answer.status, reason="there are too few")
    return Alternative(
        gpu=gpu,
        status=answer.status,
        cost_usd_per_h=answer.cost_usd_per_h,
        extra_usd_per_h=answer.cost_usd_per_h - solution.cost_usd_per_h,
    )


def _routes_on(problem: MixProblem, gpu: str) -> list[int]:
    """Routes that pass this GPU type only."""
    return [
        r for r, way in enumerate(problem.routes) if all(problem.options[leg.option].gpu == gpu for leg in way.legs)
    ]


def _obstacle(problem: MixProblem, request: PlanRequest, routes: Sequence[int]) -> str | None:
    """The first thing asked for that none of these routes can do, whatever the number of replicas."""
    for w, b in problem.buckets():
        if not any(problem.routes[r].serves(b) for r in routes if problem.routes[r].load == w):
            workload = request.workloads[w]
            return f"cannot serve bucket {bucket_names(workload)[b]} of {workload.name}"
    return None
