"""Chooses the method for a mix problem and runs its programs (docs/explanation/planner/formulation.md, section 4).

P1 decides the units and proves the bound.  P2 removes surplus units and replicas that cost nothing.  P3 routes the
requests and checks the counts.  All runs share one time limit.

| P1 of | solved by |
|---|---|
| workloads that share nothing | `planner.solve.single_workload` (section 8), HiGHS only |
| many workloads that share stock or limits | `planner.solve.branch_and_price`, HiGHS only |
| failures to survive, or nodes that options do not share | `planner.solve.resilience` |
| all others, and every run of CBC | `planner.solve.ilp` |
"""

from collections.abc import Collection, Iterable, Sequence
from math import fsum

from fleet.solvers import Deadline, Limits, Outcome, Solver, SolverError, SolveStatus, run
from planner.problem import MixProblem
from planner.solve import ilp, resilience, single_workload
from planner.solve.fixed_counts import NEGLIGIBLE_SHARE, OVERLOAD_TOLERANCE, normalised, refuse_overload, route
from planner.solve.solution import MixSolution, Shares, rates_served

DECOMPOSED_LOADS = 5  # with fewer workloads P1 whole is as fast
FIRST_SHARE = 0.8  # of the time for P5; P6 has the rest


def solve_mix(
    problem: MixProblem, *, solver: Solver, limits: Limits, routes: Collection[int] | None = None
) -> MixSolution:
    usable = range(len(problem.routes)) if routes is None else routes
    deadline = Deadline.of(limits)
    if not problem.objective.serves_all:
        return _serve_most(problem, solver=solver, deadline=deadline)
    tables = single_workload.tables_of(problem, routes=usable) if solver is Solver.HIGHS else None
    if tables is not None and (solution := _by_tables(problem, tables, deadline=deadline)) is not None:
        return solution
    if solver is Solver.HIGHS and routes is None and (solution := _decomposed(problem, limits=limits)) is not None:
        return solution
    model, outcome = _best(problem, solver=solver, deadline=deadline, routes=usable)
    bound = max(0.0, outcome.bound)  # valid because no weight is negative
    if not outcome.status.has_mix:
        return MixSolution.without_mix(problem, status=outcome.status, bound=bound)
    if _may_hold_spare(problem, model.counts_of_units()):
        model = _without_spare(model, solver=solver, deadline=deadline)
    return _solution(model, status=outcome.status, bound=bound)


def _by_tables(
    problem: MixProblem, tables: Sequence[single_workload.Table], *, deadline: Deadline
) -> MixSolution | None:
    """P1 per workload; None if P3 rejects the counts because of rounding."""
    mixes = [
        single_workload.cheapest(table, limits=deadline.rest(1 / (len(tables) - at))) for at, table in enumerate(tables)
    ]
    status = _worst(mix.outcome.status for mix in mixes)
    bound = fsum(mix.outcome.bound for mix in mixes)
    if not status.has_mix:
        return MixSolution.without_mix(problem, status=status, bound=bound)
    units, replicas = [0] * len(problem.supplies), [0] * len(problem.options)
    for table, mix in zip(tables, mixes, strict=True):
        for r, count in zip(table.routes, mix.units, strict=True):
            option = problem.routes[r].legs[0].option
            units[problem.options[option].supply] = int(count)
            replicas[option] = int(count) * single_workload.replicas_per_unit(problem, option)
    if _may_hold_spare(problem, units):
        replicas = list(_needed_replicas(problem, tables, units=units, deadline=deadline))
    try:
        shares = route(problem, replicas=replicas)
    except SolverError:
        return None
    return MixSolution.of(
        problem, status=status, bound=bound, units=tuple(units), replicas=tuple(replicas), shares=shares
    )


def _needed_replicas(
    problem: MixProblem, tables: Sequence[single_workload.Table], *, units: Sequence[int], deadline: Deadline
) -> tuple[int, ...]:
    """P2 on the chosen units, which are all needed: only the replicas can be fewer."""
    routes = [int(r) for table in tables for r in table.routes]
    fewest = ilp.fewest_gpus(problem, units=units, ceiling=0.0, routes=routes)
    if run(fewest.program, solver=Solver.HIGHS, limits=deadline.rest()).status.has_mix:
        return fewest.counts_of_replicas()
    return tuple(
        units[option.supply] * single_workload.replicas_per_unit(problem, o) for o, option in enumerate(problem.options)
    )


def _worst(statuses: Iterable[SolveStatus]) -> SolveStatus:
    order = (SolveStatus.INFEASIBLE, SolveStatus.TIME_LIMIT, SolveStatus.FEASIBLE, SolveStatus.OPTIMAL)
    return min(statuses, key=order.index)


def _best(
    problem: MixProblem, *, solver: Solver, deadline: Deadline, routes: Collection[int]
) -> tuple[ilp.MixModel, Outcome]:
    """P1, whole or by cuts."""
    if _is_by_cuts(problem) and routes:  # without routes P1 is infeasible at once
        found = resilience.solve(problem, routes=routes, solver=solver, deadline=deadline)
        return found.model, found.outcome
    model = ilp.cheapest(problem, routes=routes)
    return model, run(model.program, solver=solver, limits=deadline.rest())


def _is_by_cuts(problem: MixProblem) -> bool:
    """Whether failures are survived, or nodes not shared, as when an explanation drops the failures."""
    return bool(problem.losses) or problem.own_nodes


def _decomposed(problem: MixProblem, *, limits: Limits) -> MixSolution | None:
    """Many workloads that share stock or limits; None if the method does not apply."""
    if len(problem.loads) < DECOMPOSED_LOADS:
        return None
    from planner.solve import branch_and_price  # noqa: PLC0415

    if not branch_and_price.decomposes(problem):
        return None
    return branch_and_price.solve_decomposed(problem, limits=limits, clock_s=limits.clock_s).solution


def _serve_most(problem: MixProblem, *, solver: Solver, deadline: Deadline) -> MixSolution:
    most = ilp.max_served(problem)
    outcome = run(most.program, solver=solver, limits=deadline.rest(FIRST_SHARE))
    if not outcome.status.has_mix:
        return MixSolution.without_mix(problem, status=outcome.status, bound=max(0.0, outcome.bound))
    served_rps = sum(rates_served(problem, most.shares_found()).values())
    model = ilp.cheapest_serving(problem, served_rps=served_rps * (1 - OVERLOAD_TOLERANCE))
    if not run(model.program, solver=solver, limits=deadline.rest()).status.has_mix:
        model = most
    return _solution(model, status=outcome.status, bound=outcome.bound)


def _solution(model: ilp.MixModel, *, status: SolveStatus, bound: float) -> MixSolution:
    problem, units, replicas = model.problem, model.counts_of_units(), model.counts_of_replicas()
    shares = _shares(model, replicas=replicas)
    return MixSolution.of(problem, status=status, bound=bound, units=units, replicas=replicas, shares=shares)


def _shares(model: ilp.MixModel, *, replicas: tuple[int, ...]) -> Shares:
    """The most even routing, unless the objective depends on the routing or demand stays unserved."""
    if model.problem.objective.counts_price:
        return route(model.problem, replicas=replicas)
    if not model.problem.objective.serves_all:
        return {key: min(1.0, share) for key, share in model.shares_found().items() if share > NEGLIGIBLE_SHARE}
    shares = normalised(model.problem, model.shares_found())
    refuse_overload(model.problem, replicas=replicas, shares=shares)
    return shares


def _may_hold_spare(problem: MixProblem, units: Sequence[int]) -> bool:
    """Whether P1 may hold surplus at no cost: free units, or units of several GPUs."""
    hired = (f for f, count in enumerate(units) if count > 0)
    return any(problem.supplies[f].slots > 1 or problem.unit_weight(f) == 0 for f in hired)


def _without_spare(model: ilp.MixModel, *, solver: Solver, deadline: Deadline) -> ilp.MixModel:
    """P2; P1's counts if time runs out."""
    ceiling = sum((x.varValue or 0.0) * weight for x, weight in ilp.objective_terms(model))
    ceiling += OVERLOAD_TOLERANCE * max(1.0, abs(ceiling))
    if _is_by_cuts(model.problem):
        return resilience.fewest_gpus(model, ceiling=ceiling, solver=solver, deadline=deadline) or model
    fewest = ilp.fewest_gpus(model.problem, units=model.counts_of_units(), ceiling=ceiling, routes=model.routes)
    return fewest if run(fewest.program, solver=solver, limits=deadline.rest()).status.has_mix else model
