"""The programs of docs/explanation/planner/formulation.md, section 4, under their numbers."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

import pulp

from planner.problem import Loss, MixProblem
from planner.solve.ilp import constraints as c
from planner.solve.ilp.model import MixModel, Variable, with_counts, with_shares

NO_LOSS: Mapping[int, Loss] = MappingProxyType({})


def cheapest(
    problem: MixProblem,
    *,
    routes: Collection[int],
    losses: Mapping[int, Loss] = NO_LOSS,
    by_counts: bool = False,
    most: Mapping[int, float] | None = None,
) -> MixModel:
    """P1: the mix with the best objective that serves all demand over these routes.

    `by_counts` gives P8: counts alone, for objectives that do not depend on the routing, at most `most` replicas of
    each option; `service` rows follow as needed.
    """
    model = with_counts(problem, routes=routes, shares=not by_counts, most=most)
    _add_service(model, by_counts=by_counts)
    c.add_stock(model)
    c.add_limit(model)
    c.add_started(model)
    c.add_left(model, losses)
    model.optimise(objective_terms(model))
    return model


def fewest_gpus(
    problem: MixProblem,
    *,
    units: Sequence[int],
    ceiling: float,
    routes: Collection[int],
    losses: Mapping[int, Loss] = NO_LOSS,
    by_counts: bool = False,
) -> MixModel:
    """P2: the fewest GPUs within the chosen units and at the same objective value; `by_counts` gives P9."""
    usable = [r for r in routes if _within(problem, r, units)]
    model = with_counts(problem, routes=usable, shares=not by_counts)
    _add_service(model, by_counts=by_counts)
    c.add_chosen_units(model, units)
    c.add_limit(model)
    c.add_started(model)
    c.add_left(model, losses)
    if not problem.objective.is_price_only:
        c.add_ceiling(model, objective_terms(model), ceiling)
    hired = [(m, problem.supplies[f].slots) for f, m in model.units.items()]
    model.optimise([*hired, *((n, problem.options[o].slots) for o, n in model.replicas.items())])
    return model


def min_max_load(problem: MixProblem, *, replicas: Sequence[int]) -> MixModel:
    """P3: the routing of fixed counts with the least load on the busiest replica of each workload."""
    running = [r for r, route in enumerate(problem.routes) if route.runs(replicas)]
    model = with_shares(problem, routes=running)
    for w in sorted({w for w, _ in problem.buckets()}):
        model.busiest[w] = model.add_variable(f"busiest_{w}")
    c.add_demand(model)
    c.add_evenness(model, replicas)
    model.optimise((z, 1.0) for z in model.busiest.values())
    return model


def min_shortage(problem: MixProblem) -> MixModel:
    """P4: the fewest GPUs beyond the stock that serve all demand."""
    model = with_counts(problem, routes=range(len(problem.routes)))
    for f in model.units:
        model.extra_units[f] = model.add_variable(f"extra_units_{f}", integer=True)
    _add_service(model)
    c.add_stock(model)
    model.optimise((e, problem.supplies[f].slots) for f, e in model.extra_units.items())
    return model


def max_served(problem: MixProblem) -> MixModel:
    """P5: the most demand served inside every limit, in requests per second."""
    model = with_counts(problem, routes=range(len(problem.routes)))
    c.add_demand_at_most(model)
    _add_serving_limits(model)
    model.program.sense = pulp.LpMaximize
    model.optimise(c.served_terms(model))
    return model


def cheapest_serving(problem: MixProblem, *, served_rps: float) -> MixModel:
    """P6: the cheapest units that serve at least this rate."""
    model = with_counts(problem, routes=range(len(problem.routes)))
    c.add_demand_at_most(model)
    c.add_served(model, served_rps)
    _add_serving_limits(model)
    model.optimise((m, problem.supplies[f].price_usd_per_h) for f, m in model.units.items())
    return model


def objective_terms(model: MixModel) -> list[tuple[Variable, float]]:
    return [(x, weight) for x, weight in _weighted(model) if weight]


def _weighted(model: MixModel) -> Iterator[tuple[Variable, float]]:
    problem, change = model.problem, model.problem.change
    for f, m in model.units.items():
        yield m, problem.unit_weight(f)
    for o, n in model.replicas.items():
        yield n, problem.replica_weight(o)
        for r, route, leg in model.legs_through[o]:
            for b in range(len(leg.max_rps)):
                if (r, b) in model.shares:
                    busy = problem.busy_per_share(route, leg, b) / model.scale(r, b)
                    yield model.shares[r, b], problem.busy_weight(o) * busy
    if weight := problem.objective.switching_weight:
        yield from ((u, weight * change.start_usd_per_h) for u in model.started.values())
        yield from ((v, weight * change.stop_usd_per_h) for v in model.stopped.values())


def _add_service(model: MixModel, *, by_counts: bool = False) -> None:
    """The rows of every program that serves all demand with its own counts."""
    if not by_counts:
        c.add_demand(model)
        c.add_capacity(model)
        c.add_running(model)
    c.add_packing(model)
    c.add_own_nodes(model)
    c.add_min_replicas(model)


def _add_serving_limits(model: MixModel) -> None:
    c.add_capacity(model)
    c.add_running(model)
    c.add_packing(model)
    c.add_own_nodes(model)
    c.add_stock(model)
    c.add_limit(model)
    c.add_started(model)


def _within(problem: MixProblem, route: int, units: Sequence[int]) -> bool:
    return all(units[problem.options[leg.option].supply] > 0 for leg in problem.routes[route].legs)
