"""From a mix problem to counts and routing weights: three programs in a row (docs/formulation.md, section 4).

P1 finds the cheapest units and proves it.  P2 drops what costs nothing but is not needed.  P3 spreads the requests over
the replicas as evenly as they allow, and by that checks P1's counts a second time.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from planner import ilp
from planner.problem import MixProblem
from planner.solvers import Limits, Solver, SolverError, SolveStatus, run

NEGLIGIBLE_SHARE = 1e-9  # shares below this are the solver's rounding, not routing
OVERLOAD_TOLERANCE = 1e-6  # how far above its limit a replica's load may come out by rounding
ROUTING_LIMITS = Limits(time_limit_s=60.0)  # a linear program of milliseconds: never to be cut short


@dataclass(frozen=True, slots=True)
class MixSolution:
    """Counts, routing and proof.  All counts are 0 where the status has no mix."""

    status: SolveStatus
    bound_usd_per_h: float  # infinite when nothing serves the demand
    cost_usd_per_h: float | None
    units: tuple[int, ...]  # per supply
    replicas: tuple[int, ...]  # per option
    shares: dict[tuple[int, int], float]  # (option, bucket) -> share of the bucket
    busy: tuple[float, ...]  # per option, how many replicas' worth of load it carries

    @classmethod
    def without_mix(cls, problem: MixProblem, *, status: SolveStatus, bound_usd_per_h: float) -> Self:
        """Nothing to run."""
        return cls(
            status=status,
            bound_usd_per_h=bound_usd_per_h,
            cost_usd_per_h=None,
            units=(0,) * len(problem.supplies),
            replicas=(0,) * len(problem.options),
            shares={},
            busy=(0.0,) * len(problem.options),
        )


def solve_mix(
    problem: MixProblem, *, solver: Solver, limits: Limits, options: Collection[int] | None = None
) -> MixSolution:
    """The cheapest mix out of all options, or only of those named."""
    usable = range(len(problem.options)) if options is None else options
    model = ilp.cheapest(problem, options=usable)
    outcome = run(model.program, solver=solver, limits=limits)
    bound_usd_per_h = max(0.0, outcome.bound)  # prices are not negative, so this too is proven
    if not outcome.status.has_mix:
        return MixSolution.without_mix(problem, status=outcome.status, bound_usd_per_h=bound_usd_per_h)
    if _may_hold_spare(problem, model.counts_of_units()):
        model = _without_spare(model, solver=solver, limits=limits)
    units, replicas = model.counts_of_units(), model.counts_of_replicas()
    shares = route(problem, replicas=replicas)
    cost_usd_per_h = problem.cost_usd_per_h(units)
    return MixSolution(
        status=outcome.status,
        bound_usd_per_h=min(bound_usd_per_h, cost_usd_per_h),
        cost_usd_per_h=cost_usd_per_h,
        units=units,
        replicas=replicas,
        shares=shares,
        busy=busy_replicas(problem, shares=shares),
    )


def route(problem: MixProblem, *, replicas: Sequence[int]) -> dict[tuple[int, int], float]:
    """The most even routing over these replicas: shares that are never negative and sum to one per bucket.

    Always by HiGHS: there is nothing to prove here, and CBC has called a routing optimal that was not.
    """
    if not any(problem.buckets()):
        return {}
    model = ilp.most_even(problem, replicas=replicas)
    outcome = run(model.program, solver=Solver.HIGHS, limits=ROUTING_LIMITS)
    if not outcome.status.has_mix:
        raise SolverError(f"the counts {tuple(replicas)} admit no routing ({outcome.status})")
    shares = _normalised(problem, model.shares_found())
    _refuse_overload(problem, replicas=replicas, busy=busy_replicas(problem, shares=shares))
    return shares


def busy_replicas(problem: MixProblem, *, shares: Mapping[tuple[int, int], float]) -> tuple[float, ...]:
    """Per option, how many replicas' worth of load its shares put on it."""
    busy = [0.0] * len(problem.options)
    for (o, b), share in shares.items():
        busy[o] += share * problem.replicas_per_share(o, b)
    return tuple(busy)


def _may_hold_spare(problem: MixProblem, units: Sequence[int]) -> bool:
    """Whether P1 could have counted more than needed at no cost: free units, or units of several GPUs."""
    hired = (supply for supply, count in zip(problem.supplies, units, strict=True) if count > 0)
    return any(supply.slots > 1 or supply.price_usd_per_h == 0 for supply in hired)


def _without_spare(model: ilp.MixModel, *, solver: Solver, limits: Limits) -> ilp.MixModel:
    fewest = ilp.fewest_gpus(model.problem, units=model.counts_of_units(), options=model.options)
    return fewest if run(fewest.program, solver=solver, limits=limits).status.has_mix else model


def _normalised(problem: MixProblem, raw: Mapping[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    kept = {key: share for key, share in raw.items() if share > NEGLIGIBLE_SHARE}
    totals: dict[tuple[int, int], float] = {}
    for (o, b), share in kept.items():
        bucket = problem.options[o].load, b
        totals[bucket] = totals.get(bucket, 0.0) + share
    return {(o, b): share / totals[problem.options[o].load, b] for (o, b), share in kept.items()}


def _refuse_overload(problem: MixProblem, *, replicas: Sequence[int], busy: Sequence[float]) -> None:
    for option, count, load in zip(problem.options, replicas, busy, strict=True):
        if load > problem.utilisation * count * (1 + OVERLOAD_TOLERANCE):
            raise SolverError(f"{count} replicas of {option.name} cannot carry the load of {load:.9g}")
