"""For each GPU type among the options, the cheapest plan on that type alone, or the reason why there is none."""

from collections.abc import Iterable, Iterator, Sequence

from pydantic import Field

from fleet.documents import Frozen
from fleet.solvers import SolveStatus
from planner.explain.constraints import Kind, plural
from planner.explain.iis import Conflict, conflicts
from planner.explain.what_if import NOT_PROVEN, WhatIf, avoiding, listed, negligible, worse_by
from planner.problem import MixProblem
from planner.request import PlanRequest, bucket_names
from planner.solve.solution import MixSolution

MAX_NAMED = 3  # buckets in one sentence
MAX_LINES = 6  # GPU types with a sentence; the plan's figures have all
SETTLED = {SolveStatus.OPTIMAL, SolveStatus.INFEASIBLE}


class Alternative(Frozen):
    """The cheapest plan on one GPU type only."""

    gpu: str
    status: SolveStatus
    cost_usd_per_h: float | None = None
    extra_usd_per_h: float | None = None
    reason: str | None = Field(
        default=None, description="Why there is no cost; or, beside a cost, the value by an objective other than cost."
    )


def single_gpu_plans(what_if: WhatIf, request: PlanRequest, solution: MixSolution) -> list[Alternative]:
    """One per GPU type, cheapest first; empty without a mix to compare with, or with only one type."""
    return _cheapest_first(_single_gpu_plans(what_if, request, solution))


def improved(what_if: WhatIf, found: Sequence[Alternative], solution: MixSolution) -> list[Alternative]:
    """The same, with better mixes on one type that later solves found."""
    better = []
    for alternative in found:
        others = [o for o, option in enumerate(what_if.problem.options) if option.gpu != alternative.gpu]
        known = None if alternative.status in SETTLED else what_if.best_known(others, None)
        if known is not None and known.cost_usd_per_h is not None:
            cost = alternative.cost_usd_per_h
            if cost is None or known.cost_usd_per_h < cost:
                better.append(_compared(alternative.gpu, what_if.problem, known, solution))
                continue
        better.append(alternative)
    return _cheapest_first(better)


def as_text(found: Sequence[Alternative]) -> Iterator[str]:
    yield from map(_line, found[:MAX_LINES])
    if (more := len(found) - MAX_LINES) > 0:
        yield f"{plural(more, 'other GPU type')} alone: dearer than these, not possible or not compared"


def _cheapest_first(found: Iterable[Alternative]) -> list[Alternative]:
    return sorted(
        found, key=lambda alternative: (alternative.cost_usd_per_h is None, alternative.cost_usd_per_h or 0.0)
    )


def _line(alternative: Alternative) -> str:
    if alternative.cost_usd_per_h is None or alternative.extra_usd_per_h is None:
        return f"only {alternative.gpu}: {alternative.reason}"
    cost, extra = alternative.cost_usd_per_h, alternative.extra_usd_per_h
    doubt = NOT_PROVEN if alternative.status is SolveStatus.FEASIBLE else ""
    if alternative.reason is not None:
        return f"only {alternative.gpu}: {alternative.reason}, at {cost:.2f} $/h{doubt}"
    if negligible(extra, of=cost):
        return f"only {alternative.gpu}: {cost:.2f} $/h, the same{doubt}"
    base = cost - extra
    relative = f" ({abs(extra) / base:.0%})" if base > 0 else ""
    more = "more" if extra > 0 else "less"
    return f"only {alternative.gpu}: {cost:.2f} $/h, {abs(extra):.2f} $/h{relative} {more}{doubt}"


def _single_gpu_plans(what_if: WhatIf, request: PlanRequest, solution: MixSolution) -> Iterator[Alternative]:
    types = sorted({option.gpu for option in what_if.problem.options}) if solution.status.has_mix else []
    for gpu in types if len(types) > 1 else ():
        others = [o for o, option in enumerate(what_if.problem.options) if option.gpu != gpu]
        alone = avoiding(what_if.problem, others)
        if obstacle := _obstacle(alone, request, others):
            yield Alternative(gpu=gpu, status=SolveStatus.INFEASIBLE, reason=obstacle)
        else:
            yield _priced(gpu, what_if, others, solution)


def _priced(gpu: str, what_if: WhatIf, others: list[int], solution: MixSolution) -> Alternative:
    result = what_if.without_options(others)
    if result is None:
        return Alternative(gpu=gpu, status=SolveStatus.TIME_LIMIT, reason="not compared, the time limit expired")
    if result.cost_usd_per_h is None or solution.cost_usd_per_h is None:
        found = conflicts(what_if.with_problem(avoiding(what_if.problem, others)))
        return Alternative(gpu=gpu, status=result.status, reason=_broken(found))
    return _compared(gpu, what_if.problem, result, solution)


def _compared(gpu: str, problem: MixProblem, result: MixSolution, solution: MixSolution) -> Alternative:
    if result.cost_usd_per_h is None or solution.cost_usd_per_h is None:
        raise AssertionError("both have a mix")
    return Alternative(
        gpu=gpu,
        status=result.status,
        cost_usd_per_h=result.cost_usd_per_h,
        extra_usd_per_h=result.cost_usd_per_h - solution.cost_usd_per_h,
        reason=_by_objective(problem, result, than=solution),
    )


def _by_objective(problem: MixProblem, result: MixSolution, *, than: MixSolution) -> str | None:
    """The value and the difference, for an objective other than cost."""
    if problem.objective.counts_price or result.objective_value is None or than.objective_value is None:
        return None
    worse = worse_by(problem, result, than=than) or 0.0
    value = problem.objective.value(result.objective_value)
    if negligible(worse, of=than.objective_value):
        return f"{value}, the same"
    more = (worse > 0) is not problem.objective.maximises
    return f"{value}, {problem.objective.with_unit(abs(worse))} {'more' if more else 'less'}"


def _broken(found: tuple[Conflict, ...]) -> str:
    """The change that would resolve the conflict, or, if no single change does, the requirements that conflict."""
    if not found:
        return "impossible; what forbids it is not known: the time limit expired"
    needed = [way.easing for way in found[0].ways_out if way.kind is not Kind.DEMAND]
    if len(found) == 1 and needed:
        return f"impossible, it would take {listed(needed, 'or')}"
    names = [name for name, kind in zip(found[0].requirements, found[0].kinds, strict=True) if kind is not Kind.DEMAND]
    return f"impossible because of {listed(names or found[0].requirements, 'and')}"


def _obstacle(alone: MixProblem, request: PlanRequest, others: list[int]) -> str | None:
    """The buckets that no remaining route can serve with any number of replicas."""
    usable = [route for route in alone.routes if not any(leg.option in others for leg in route.legs)]
    unserved = [
        f"{bucket_names(request.workloads[w])[b]} of {request.workloads[w].name}"
        for w, b in alone.buckets()
        if not any(route.serves(b) for route in usable if route.load == w)
    ]
    if not unserved:
        return None
    more = len(unserved) - MAX_NAMED
    named = [*unserved[:MAX_NAMED], *([f"{more} more"] if more > 0 else [])]
    return f"cannot serve bucket{'s' if len(unserved) > 1 else ''} {listed(named, 'and')}"
