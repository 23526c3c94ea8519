"""The solution of a mix problem: counts, routing and proven bound."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from fleet.solvers import SolveStatus
from planner.problem import MixProblem

Shares = dict[tuple[int, int], float]  # (route, bucket) -> share of the bucket


@dataclass(frozen=True, slots=True)
class MixSolution:
    """Counts, routing and proof.  All counts are 0 where the status has no mix."""

    status: SolveStatus
    bound: float  # in the objective's unit, $/h by default; infinite when no mix serves the demand
    objective_value: float | None
    cost_usd_per_h: float | None
    units: tuple[int, ...]  # per supply
    replicas: tuple[int, ...]  # per option
    shares: Shares
    busy: tuple[float, ...]  # per option, its load in replicas

    @classmethod
    def of(
        cls,
        problem: MixProblem,
        *,
        status: SolveStatus,
        bound: float,
        units: tuple[int, ...],
        replicas: tuple[int, ...],
        shares: Shares,
    ) -> Self:
        """A mix with its value; a bound beyond the value is the solver's rounding."""
        value = objective_value(problem, units=units, replicas=replicas, shares=shares)
        return cls(
            status=status,
            bound=max(bound, value) if problem.objective.maximises else min(bound, value),
            objective_value=value,
            cost_usd_per_h=problem.cost_usd_per_h(units),
            units=units,
            replicas=replicas,
            shares=shares,
            busy=busy_replicas(problem, shares=shares),
        )

    @classmethod
    def without_mix(cls, problem: MixProblem, *, status: SolveStatus, bound: float) -> Self:
        return cls(
            status=status,
            bound=bound,
            objective_value=None,
            cost_usd_per_h=None,
            units=(0,) * len(problem.supplies),
            replicas=(0,) * len(problem.options),
            shares={},
            busy=(0.0,) * len(problem.options),
        )


def objective_value(problem: MixProblem, *, units: tuple[int, ...], replicas: tuple[int, ...], shares: Shares) -> float:
    objective = problem.objective
    if not objective.serves_all:
        return sum(rates_served(problem, shares).values())
    value = 0.0
    if objective.counts_price:
        value += objective.price_weight * problem.cost_usd_per_h(units)
    if objective.counts_switching:
        value += objective.switching_weight * _switching_usd_per_h(problem, replicas)
    if objective.counts_power:
        busy = busy_replicas(problem, shares=shares)
        value += sum(
            problem.replica_weight(o) * replicas[o] + problem.busy_weight(o) * busy[o] for o in range(len(replicas))
        )
    return value


def _switching_usd_per_h(problem: MixProblem, replicas: tuple[int, ...]) -> float:
    moves = [(n - option.held) for n, option in zip(replicas, problem.options, strict=True)]
    started, stopped = sum(max(0, move) for move in moves), sum(max(0, -move) for move in moves)
    return problem.change.start_usd_per_h * started + problem.change.stop_usd_per_h * stopped


def busy_replicas(problem: MixProblem, *, shares: Mapping[tuple[int, int], float]) -> tuple[float, ...]:
    """Per option, the load of these shares in replicas."""
    busy = [0.0] * len(problem.options)
    for (r, b), share in shares.items():
        for leg in problem.routes[r].legs:
            busy[leg.option] += share * problem.busy_per_share(problem.routes[r], leg, b)
    return tuple(busy)


def rates_served(problem: MixProblem, shares: Mapping[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    """(load, bucket) -> requests per second that these shares serve."""
    served: dict[tuple[int, int], float] = {}
    for (r, b), share in shares.items():
        w = problem.routes[r].load
        served[w, b] = served.get((w, b), 0.0) + share * problem.loads[w].rate_rps[b]
    return served
