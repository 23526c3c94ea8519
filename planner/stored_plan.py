"""Replays simulated requests over a plan that was solved before, without solving it again."""

from collections.abc import Callable, Iterator

from pydantic import Field

from fleet.documents import Frozen, dotted
from fleet.errors import DocumentError, Problem
from fleet.gpus import GpuCatalogue
from fleet.models import ModelCatalogue
from fleet.offers import PriceSheet
from fleet.solvers import Limits
from planner.explain.what_if import WhatIf
from planner.options.builder import candidates
from planner.policy import Replay
from planner.problem import MixProblem
from planner.problem_builder import build_problem
from planner.request import PlanRequest, bucket_names
from planner.result import Plan
from planner.solve.solution import MixSolution
from planner.stock import as_planned
from planner.validation.scenarios import WorkloadValidation
from planner.validation.slo_validation import SloValidator, at_utilisation


class PlanReplay(Frozen):
    """The check of a plan's SLOs by a replay of its workloads."""

    verified: bool | None = Field(
        description="Whether every limit of every SLO held; absent: no limit broke, but not all were replayed."
    )
    proofs: tuple[WorkloadValidation, ...] = Field(description="Results of the replay of each workload.")
    not_replayed: tuple[str, ...] = Field(default=(), description="Workloads for which there was no time.")
    obstacle: str | None = Field(default=None, description="Why the plan cannot be replayed.")
    is_cut: bool = Field(default=False, description="The time limit ended the replay before everything was tried.")


def replay_plan(
    request: PlanRequest,
    plan: Plan,
    *,
    hours: float,
    seed: int,
    time_limit_s: float,
    gpus: GpuCatalogue,
    models: ModelCatalogue,
    prices: PriceSheet,
    clock_s: Callable[[], float],
    report: Callable[[str, float | None], None] = lambda _phase, _share: None,
) -> PlanReplay:
    """Replay the mix and the routing of a plan.  DocumentError: the plan has no mix, or names unknown options."""
    ends_s = clock_s() + time_limit_s
    if not plan.status.has_mix:
        raise DocumentError(name="plan", problems=[Problem("status", f"is {plan.status}: there is no mix to replay")])
    how = Replay(hours=hours, seed=seed, size=False)
    request = request.model_copy(update={"replay": how})
    report("options", None)
    offers = as_planned(prices.offers if request.offers is None else request.offers, plan.stock)
    found = candidates(request, gpus=gpus, models=models, offers=offers, profiles=request.profiles)
    planned = {proof.workload: proof.utilisation for proof in plan.proofs}
    problem = at_utilisation(build_problem(request, found), planned)
    solution = _solution(request, plan, problem)
    limits = Limits(time_limit_s=time_limit_s)
    what_if = WhatIf(problem=problem, solver=plan.solver, limits=limits, deadline_s=ends_s, clock_s=clock_s)
    report("replay", None)
    proven = SloValidator.of(request, found, how).validate(what_if, solution)
    return PlanReplay(
        verified=proven.verified,
        proofs=proven.proofs,
        not_replayed=proven.unproven,
        obstacle=proven.obstacle,
        is_cut=proven.is_cut,
    )


def _solution(request: PlanRequest, plan: Plan, problem: MixProblem) -> MixSolution:
    """The mix and the routing of the plan, as a solution of its problem."""
    replicas = _replicas(plan, problem)
    return MixSolution.of(
        problem,
        status=plan.status,
        bound=plan.goal_bound if plan.goal_bound is not None else 0.0,
        units=problem.units_of(replicas),
        replicas=replicas,
        shares=dict(_shares(request, plan, problem)),
    )


def _replicas(plan: Plan, problem: MixProblem) -> tuple[int, ...]:
    position_of = {
        (problem.loads[route.load].name, problem.options[leg.option].name): leg.option
        for route in problem.routes
        for leg in route.legs
    }
    counts = [0] * len(problem.options)
    for position, entry in enumerate(plan.allocation):
        option = position_of.get((entry.workload, entry.option))
        if option is None:
            message = f"{entry.option!r} is no option of {entry.workload} with the catalogues that are left"
            raise DocumentError(name="plan", problems=[Problem(dotted(("allocation", position, "option")), message)])
        counts[option] = entry.count
    return tuple(counts)


def _shares(request: PlanRequest, plan: Plan, problem: MixProblem) -> Iterator[tuple[tuple[int, int], float]]:
    buckets = [bucket_names(workload) for workload in request.workloads]
    for r, route in enumerate(problem.routes):
        load = problem.loads[route.load]
        weights = plan.routing.get(load.name, {})
        for b, name in enumerate(buckets[route.load]):
            weight = weights.get(name, {}).get(route.name, 0.0)
            if weight > 0 and load.rate_rps[b] > 0:
                yield (r, b), weight
