"""Combines the parts of a plan's explanation (docs/explanation/planner/explanations.md)."""

from collections.abc import Iterator, Sequence
from itertools import chain

from fleet.documents import Frozen
from fleet.solvers import SolveStatus
from planner.explain import alternatives, break_even, ideal_bound, iis, prices, runner_up
from planner.explain.alternatives import Alternative
from planner.explain.break_even import BreakEven
from planner.explain.constraints import Kind
from planner.explain.ideal_bound import IdealBound
from planner.explain.iis import Conflict
from planner.explain.prices import DomainWatts, Prices, domain_watts
from planner.explain.runner_up import RunnerUp
from planner.explain.what_if import Shortage, WhatIf, negligible
from planner.options.search import Candidate
from planner.policy import ExplainLevel
from planner.problem import MixProblem
from planner.request import PlanRequest, bucket_names
from planner.solve.solution import MixSolution
from planner.throughput import ThroughputSource
from planner.time_limit import EXPLAIN_SHARE

NOT_WORKED_OUT = "is not known: the time limit expired"
CONFLICT_SHARE = 0.5  # without a mix: the conflict is then the whole explanation


class Explanation(Frozen):
    lines: tuple[str, ...] = ()
    prices: Prices = Prices()
    alternatives: tuple[Alternative, ...] = ()
    runners_up: tuple[RunnerUp, ...] = ()
    break_evens: tuple[BreakEven, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    perfect: IdealBound | None = None
    power_domains: tuple[DomainWatts, ...] = ()


def explain(
    what_if: WhatIf, request: PlanRequest, candidates: Sequence[Candidate], solution: MixSolution
) -> Explanation:
    """The parts of the requested level, within the requested time.  A part without a result states that."""
    level, limit_s = request.policy.explain, request.policy.explain_time_limit_s
    if level is ExplainLevel.NONE:
        return Explanation()
    is_infeasible = solution.status is SolveStatus.INFEASIBLE
    if limit_s is None:
        limit_s = (CONFLICT_SHARE if is_infeasible else EXPLAIN_SHARE) * request.time_limit_s
    timed = what_if.within(limit_s)
    if is_infeasible:
        return _of_nothing(timed, request, solution)
    if level is ExplainLevel.SHORT:
        return _short(timed, request, candidates, solution)
    timed.known.append((frozenset(), solution))
    return _of_a_mix(timed, request, candidates, solution)


def summary(problem: MixProblem, solution: MixSolution) -> str:
    if solution.status is SolveStatus.INFEASIBLE:
        return "no mix meets all requirements (proven)"
    if solution.cost_usd_per_h is None or solution.objective_value is None:
        return "the time limit expired before any mix was found: allow more time"
    running = ", ".join(
        f"{count} x {option.name} for {_served_by(problem, o)}"
        for o, (option, count) in enumerate(zip(problem.options, solution.replicas, strict=True))
        if count
    )
    price = f"{running or 'nothing to run'}: {solution.cost_usd_per_h:.2f} $/h"
    excess = abs(solution.objective_value - solution.bound)
    if negligible(excess, of=solution.objective_value):
        return f"{price}; {problem.objective.optimum(solution.objective_value)} (proven)"
    share = excess / solution.objective_value if solution.objective_value > 0 else None
    relative = "" if share is None else f" ({share:.2%})" if share >= 1e-4 else " (less than 0.01%)"
    return f"{price}; at most {problem.objective.with_unit(excess)}{relative} from the best possible"


def premises(request: PlanRequest, chosen: Sequence[Candidate], *, left_out: int) -> Iterator[str]:
    for workload in request.workloads:
        if workload.demand is not None:
            yield f"{workload.name} is planned at its peak of {workload.planned_rps:g} rps"
        if workload.planned_rps == 0:
            yield f"{workload.name} has no demand and gets only the replicas it requires ({workload.min_replicas})"
    if any(candidate.throughput.provenance is ThroughputSource.CALIBRATED for candidate in chosen):
        yield (
            "rates are predicted by the calibrated model, not measured by you; "
            "docs/explanation/planner/performance.md has its errors"
        )
    if left_out:
        yield f"offers not used because of their market: {left_out}; `markets` selects the markets"


def _of_a_mix(
    what_if: WhatIf, request: PlanRequest, candidates: Sequence[Candidate], solution: MixSolution
) -> Explanation:
    problem = what_if.problem
    binding = prices.prices(what_if, solution)
    others = tuple(alternatives.single_gpu_plans(what_if, request, solution))
    next_best = runner_up.runners_up(what_if, solution)
    others = tuple(alternatives.improved(what_if, others, solution))
    unused = break_even.break_evens(what_if, solution)
    short = _short(what_if, request, candidates, solution)
    lines = chain(
        short.lines[:1],
        prices.as_text(binding, problem) if solution.status.has_mix else (),
        alternatives.as_text(others),
        (runner_up.as_text(mix, problem) for mix in next_best),
        map(break_even.as_text, unused),
        short.lines[1:],
    )
    parts = {"prices": binding, "alternatives": others, "runners_up": next_best, "break_evens": unused}
    return short.model_copy(update={"lines": tuple(lines), **parts})


def _short(
    what_if: WhatIf, request: PlanRequest, candidates: Sequence[Candidate], solution: MixSolution
) -> Explanation:
    problem = what_if.problem
    bound = ideal_bound.find_ideal_bound(
        problem,
        solution,
        hardware=[ideal_bound.hardware(candidate) for candidate in candidates],
        work=ideal_bound.work(request, candidates),
    )
    lines = [summary(problem, solution)]
    if solution.status.has_mix and any(problem.buckets()):
        lines.append(ideal_bound.as_text(bound))
    return Explanation(
        lines=tuple(lines),
        perfect=bound,
        power_domains=domain_watts(problem, solution, limits=what_if.estimate_limits()),
    )


def _of_nothing(what_if: WhatIf, request: PlanRequest, solution: MixSolution) -> Explanation:
    problem = what_if.problem
    found = iis.conflicts(what_if, relaxed=request.policy.explain is ExplainLevel.FULL)
    lines = [summary(problem, solution), *map(iis.as_text, found)]
    if len(found) > 1:
        lines.insert(1, f"there are {len(found)} conflicts, and each must be resolved:")
    if not found:
        lines.append(f"which requirements conflict {NOT_WORKED_OUT}")
    if not found or any(Kind.DEMAND in conflict.kinds for conflict in found):
        lines += _unserved(problem, request, what_if.shortage())
    return Explanation(lines=tuple(lines), conflicts=found)


def _unserved(problem: MixProblem, request: PlanRequest, missing: Shortage | None) -> Iterator[str]:
    """The buckets that stay unserved when as much demand as possible is served."""
    if missing is None:
        yield f"what is missing {NOT_WORKED_OUT}"
        return
    for (w, b), unserved_rps in missing.unserved_rps.items():
        workload, demand_rps = request.workloads[w], problem.loads[w].rate_rps[b]
        unserved = f"{unserved_rps:.4g} of {demand_rps:.4g} rps"
        bucket = bucket_names(workload)[b]
        yield f"{workload.name}, bucket {bucket}: {unserved} stay unserved when as much as possible is served"


def _served_by(problem: MixProblem, option: int) -> str:
    loads = {route.load for route in problem.routes if any(leg.option == option for leg in route.legs)}
    return " and ".join(problem.loads[w].name for w in sorted(loads))
