"""P3: the routing of fixed counts with the least load on the busiest replica, and the check that the counts suffice.

HiGHS always solves it: there is nothing to prove, and CBC has reported a routing as optimal that was not.
"""

from collections.abc import Mapping, Sequence

from fleet.solvers import Limits, Solver, SolverError, run
from planner.problem import Loss, MixProblem
from planner.solve import ilp, single_workload
from planner.solve.solution import Shares

NEGLIGIBLE_SHARE = 1e-9  # shares below this are the solver's rounding
OVERLOAD_TOLERANCE = 1e-6  # relative: by how much rounding may lift a load above its limit
ROUTING_LIMITS = Limits(time_limit_s=60.0)  # far above the milliseconds that this linear program takes


def route(problem: MixProblem, *, replicas: Sequence[int]) -> Shares:
    """The most even routing over these replicas: positive shares that sum to one per bucket.

    SolverError where the replicas cannot carry the demand.
    """
    if not any(problem.buckets()):
        return {}
    shares = normalised(problem, _min_max_load(problem, replicas=replicas))
    refuse_overload(problem, replicas=replicas, shares=shares)
    return shares


def survives(problem: MixProblem, loss: Loss, *, replicas: tuple[int, ...]) -> bool:
    try:
        route(problem, replicas=loss.survivors(replicas))
    except SolverError:
        return False
    return True


def normalised(problem: MixProblem, raw: Mapping[tuple[int, int], float]) -> Shares:
    """Shares without the solver's rounding, which sum to one per bucket."""
    kept = {key: share for key, share in raw.items() if share > NEGLIGIBLE_SHARE}
    totals: dict[tuple[int, int], float] = {}
    for (r, b), share in kept.items():
        bucket = problem.routes[r].load, b
        totals[bucket] = totals.get(bucket, 0.0) + share
    return {(r, b): share / totals[problem.routes[r].load, b] for (r, b), share in kept.items()}


def refuse_overload(problem: MixProblem, *, replicas: Sequence[int], shares: Shares) -> None:
    """Raise SolverError where an option's load exceeds its replicas."""
    needed = [0.0] * len(problem.options)
    for (r, b), share in shares.items():
        for leg in problem.routes[r].legs:
            needed[leg.option] += share * problem.replicas_per_share(problem.routes[r], leg, b)
    for option, count, load in zip(problem.options, replicas, needed, strict=True):
        if load > option.uptime * count * (1 + OVERLOAD_TOLERANCE):
            raise SolverError(f"{count} replicas of {option.name} cannot carry the load of {load:.9g}")


def _min_max_load(problem: MixProblem, *, replicas: Sequence[int]) -> Mapping[tuple[int, int], float]:
    if single_workload.is_plain(problem):
        return single_workload.min_max_load(problem, replicas=replicas, limits=ROUTING_LIMITS)
    model = ilp.min_max_load(problem, replicas=replicas)
    outcome = run(model.program, solver=Solver.HIGHS, limits=ROUTING_LIMITS)
    if not outcome.status.has_mix:
        raise SolverError(f"the counts {tuple(replicas)} admit no routing ({outcome.status})")
    return model.shares_found()
