"""The program of docs/explanation/planner/horizon.md: counts per period, without shares; every row has its name there.

Instead of shares, `service` rows, added on demand, decide which counts serve a period's demand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pulp

from planner.solve.ilp.model import Terms, Variable, linear

if TYPE_CHECKING:
    from planner.horizon.problem import HorizonProblem

Key = tuple[int, int]  # period, and option or supply


@dataclass(frozen=True)
class HorizonModel:
    """P7 and its variables."""

    problem: "HorizonProblem"
    program: pulp.LpProblem = field(default_factory=lambda: pulp.LpProblem("horizon", pulp.LpMinimize))
    held: dict[Key, Variable] = field(default_factory=dict)  # z[t,o]
    ready: dict[Key, Variable] = field(default_factory=dict)  # n[t,o]: the same variable without a warm-up
    units: dict[Key, Variable] = field(default_factory=dict)  # m[t,f]: R[f] itself where units are reserved
    committed: dict[int, Variable] = field(default_factory=dict)  # R[f]
    started: dict[Key, Variable] = field(default_factory=dict)  # u[t,o], only where switching costs
    stopped: dict[Key, Variable] = field(default_factory=dict)  # v[t,o], likewise

    def add_variable(self, name: str, *, integer: bool = False) -> Variable:
        return self.program.add_variable(name, 0, None, pulp.LpInteger if integer else pulp.LpContinuous)

    def at_most(self, name: str, terms: Terms, limit: float) -> None:
        self.program.addConstraint(pulp.LpConstraint(linear(terms), pulp.LpConstraintLE, name, limit))

    def equal(self, name: str, terms: Terms, value: float) -> None:
        self.program.addConstraint(pulp.LpConstraint(linear(terms), pulp.LpConstraintEQ, name, value))


def cheapest_path(problem: "HorizonProblem") -> HorizonModel:
    """P7: the cheapest counts over the periods, before any `service` row."""
    model = with_paths(problem)
    add_path(model)
    add_ready(model)
    add_packing(model)
    add_stock(model)
    add_limit(model)
    add_min_replicas(model)
    add_reach(model)
    model.program.setObjective(linear(cost_terms(model)))
    return model


def with_paths(problem: "HorizonProblem") -> HorizonModel:
    model = HorizonModel(problem)
    for f in range(len(problem.base.supplies)):
        if problem.reserved(f):
            model.committed[f] = model.add_variable(f"committed_{f}", integer=True)
    for t in range(problem.periods):
        for f in range(len(problem.base.supplies)):
            reserved = model.committed.get(f)
            model.units[t, f] = model.add_variable(f"units_{t}_{f}", integer=True) if reserved is None else reserved
        for o, warmup in enumerate(problem.warmup_periods):
            held = model.held[t, o] = model.add_variable(f"held_{t}_{o}", integer=True)
            model.ready[t, o] = model.add_variable(f"ready_{t}_{o}") if warmup else held
    return model


def add_path(model: HorizonModel) -> None:
    """path[t,o]: an increase of the running replicas is a start, a decrease a stop."""
    problem = model.problem
    if not problem.start_usd and not problem.stop_usd:
        return
    for (t, o), held in model.held.items():
        model.started[t, o] = model.add_variable(f"started_{t}_{o}")
        model.stopped[t, o] = model.add_variable(f"stopped_{t}_{o}")
        changes = [(held, 1.0), (model.started[t, o], -1.0), (model.stopped[t, o], 1.0)]
        before = problem.before(t)
        if before is None:
            model.equal(f"path_{t}_{o}", changes, problem.initial[o] if problem.initial else 0)
        elif before != t:
            model.equal(f"path_{t}_{o}", [*changes, (model.held[before, o], -1.0)], 0)


def add_ready(model: HorizonModel) -> None:
    """ready[t,s,o]: a replica serves in `t` only if it also runs in each period `s` of its warm-up."""
    problem = model.problem
    for (t, o), ready in model.ready.items():
        periods, from_start = problem.window(t, o)
        if not problem.warmup_periods[o]:
            continue
        for s in periods:
            model.at_most(f"ready_{t}_{s}_{o}", [(ready, 1.0), (model.held[s, o], -1.0)], 0)
        if from_start and problem.initial is not None:
            model.at_most(f"ready_from_start_{t}_{o}", [(ready, 1.0)], problem.initial[o])


def add_packing(model: HorizonModel) -> None:
    """packing[t,f]: replicas run on GPUs of the units hired or reserved, warm or not."""
    options, supplies = model.problem.base.options, model.problem.base.supplies
    for (t, f), units in model.units.items():
        taken = [(model.held[t, o], option.slots) for o, option in enumerate(options) if option.supply == f]
        if taken:
            model.at_most(f"packing_{t}_{f}", [*taken, (units, -supplies[f].slots)], 0)


def add_stock(model: HorizonModel) -> None:
    """stock[t,f]: no more units than are available."""
    for (t, f), units in model.units.items():
        if (available := model.problem.available(t, f)) is not None:
            model.at_most(f"stock_{t}_{f}", [(units, 1.0)], available)


def add_limit(model: HorizonModel) -> None:
    """limit[t,l]: quotas, power domains, the spot share and the budget, in every period."""
    for t in range(model.problem.periods):
        for position, limit in enumerate(model.problem.limits_of(t)):
            terms = [(model.units[t, f], weight) for f, weight in limit.units.items()]
            terms += [(model.held[t, o], weight) for o, weight in limit.replicas.items()]
            if terms:
                scale = max(1.0, *(abs(weight) for _, weight in terms))
                scaled = [(x, weight / scale) for x, weight in terms]
                model.at_most(f"limit_{t}_{position}", scaled, limit.at_most / scale)


def add_min_replicas(model: HorizonModel) -> None:
    """min_replicas[t,w]: a workload always has its minimum number of replicas."""
    base = model.problem.base
    for t in range(model.problem.periods):
        for w, load in enumerate(base.loads):
            if load.min_replicas:
                counts = [(model.ready[t, o], -1.0) for o in base.options_of(w)]
                model.at_most(f"min_replicas_{t}_{w}", counts, -load.min_replicas)


def add_reach(model: HorizonModel) -> None:
    """reach[t,k]: of the options that can serve a bucket at all, one runs whenever the bucket has demand."""
    reaches = _reaches(model.problem)
    for t, rates in enumerate(model.problem.rates_rps):
        needed = {options for (w, b), sets in reaches.items() if rates[w][b] > 0 for options in sets}
        minimal = [options for options in needed if not any(other < options for other in needed)]
        for k, options in enumerate(sorted(map(sorted, minimal))):
            model.at_most(f"reach_{t}_{k}", [(model.ready[t, o], -1.0) for o in options], -1)


def add_service(model: HorizonModel, *, period: int, cut: int, weights: Sequence[float], need: float) -> str:
    """service[t,k]: at the prices of cut `k`, the replicas' time is worth at least the period's demand."""
    name = f"service_{period}_{cut}"
    model.at_most(name, [(model.ready[period, o], -weight) for o, weight in enumerate(weights) if weight], -need)
    return name


def cost_terms(model: HorizonModel) -> list[tuple[Variable, float]]:
    """$ over the whole horizon."""
    problem, supplies = model.problem, model.problem.base.supplies
    terms = [(r, supplies[f].price_usd_per_h * problem.hours) for f, r in model.committed.items()]
    for (_, f), units in model.units.items():
        if f not in model.committed:
            terms.append((units, supplies[f].price_usd_per_h * problem.period_h))
    terms += [(u, problem.start_usd) for u in model.started.values()]
    return [*terms, *((v, problem.stop_usd) for v in model.stopped.values())]


def _reaches(problem: "HorizonProblem") -> dict[Key, list[frozenset[int]]]:
    """Per load and bucket, for each leg of a route the options that can serve it."""
    reaches: dict[Key, list[frozenset[int]]] = {}
    for w, load in enumerate(problem.base.loads):
        for b in range(len(load.rate_rps)):
            ways = [route.legs for route in problem.base.routes if route.load == w and route.serves(b)]
            longest = max(map(len, ways), default=0)
            reaches[w, b] = [frozenset(legs[min(leg, len(legs) - 1)].option for legs in ways) for leg in range(longest)]
    return reaches
