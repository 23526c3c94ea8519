"""The mix problem as PuLP programs.  The only module that builds one.

Every `add_*` function adds the constraint of the same name in docs/formulation.md, section 3; every public builder is
one program of section 4.  A bucket is split continuously over the options, so there are no slices, and none of the
symmetry that interchangeable slices bring.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulp

from planner.problem import MixProblem

LIGHT_REPLICAS = 1e-2  # a load below this disappears in a solver's tolerances too easily

Variable = Any  # PuLP is published without types
Terms = Iterable[tuple[Variable, float]]


@dataclass(frozen=True, slots=True)
class MixModel:
    """A PuLP program and the meaning of its variables."""

    problem: MixProblem
    program: pulp.LpProblem
    options: tuple[int, ...]  # those this program may use
    units: dict[int, Variable] = field(default_factory=dict)  # m[f]
    replicas: dict[int, Variable] = field(default_factory=dict)  # n[o]
    shares: dict[tuple[int, int], Variable] = field(default_factory=dict)  # x[o, b] times scale(o, b)
    extra_units: dict[int, Variable] = field(default_factory=dict)  # e[f], only in `least_missing`
    busiest: dict[int, Variable] = field(default_factory=dict)  # z[w], only in `most_even`

    def scale(self, option: int, bucket: int) -> float:
        """The factor on a share's column that keeps its coefficients within 1, so that tolerances mean little."""
        return max(1.0, self.problem.replicas_per_share(option, bucket))

    def shares_found(self) -> dict[tuple[int, int], float]:
        """After a run: (option, bucket) -> share, as the solver rounds it."""
        return {(o, b): x.varValue / self.scale(o, b) for (o, b), x in self.shares.items()}

    def counts_of_units(self) -> tuple[int, ...]:
        """After a run: whole units per supply of the problem."""
        return _counts(self.units, len(self.problem.supplies))

    def counts_of_extra_units(self) -> tuple[int, ...]:
        """After a run of `least_missing`: whole units beyond the stock, per supply of the problem."""
        return _counts(self.extra_units, len(self.problem.supplies))

    def counts_of_replicas(self) -> tuple[int, ...]:
        """After a run: whole replicas per option of the problem."""
        return _counts(self.replicas, len(self.problem.options))


def cheapest(problem: MixProblem, *, options: Collection[int]) -> MixModel:
    """P1: the cheapest units that serve all demand, using no other options than these."""
    model = _counts_and_shares(problem, options=options)
    _add_service(model)
    add_stock(model)
    _minimise(model, ((m, problem.supplies[f].price_usd_per_h) for f, m in model.units.items()))
    return model


def fewest_gpus(problem: MixProblem, *, units: Sequence[int], options: Collection[int]) -> MixModel:
    """P2: within the units already chosen, no GPU hired or in use without need, which price alone cannot see."""
    model = _counts_and_shares(problem, options=[o for o in options if units[problem.options[o].supply] > 0])
    _add_service(model)
    add_chosen_units(model, units)
    hired = [(m, problem.supplies[f].slots) for f, m in model.units.items()]
    _minimise(model, [*hired, *((n, problem.options[o].slots) for o, n in model.replicas.items())])
    return model


def most_even(problem: MixProblem, *, replicas: Sequence[int]) -> MixModel:
    """P3: with the counts fixed, the routing whose busiest replica of each workload is the least busy."""
    model = _shares(problem, options=[o for o, count in enumerate(replicas) if count > 0])
    for w in sorted({w for w, _ in problem.buckets()}):
        model.busiest[w] = model.program.add_variable(f"busiest_{w}", 0)
    add_demand(model)
    add_evenness(model, replicas)
    _minimise(model, ((z, 1.0) for z in model.busiest.values()))
    return model


def least_missing(problem: MixProblem) -> MixModel:
    """P4: the fewest GPUs beyond the stock with which all demand could be served."""
    model = _counts_and_shares(problem, options=range(len(problem.options)))
    for f in model.units:
        model.extra_units[f] = model.program.add_variable(f"extra_units_{f}", 0, None, pulp.LpInteger)
    _add_service(model)
    add_stock(model)
    _minimise(model, ((e, problem.supplies[f].slots) for f, e in model.extra_units.items()))
    return model


def most_served(problem: MixProblem) -> MixModel:
    """P5: the most demand that the stock can serve, in requests per second."""
    model = _counts_and_shares(problem, options=range(len(problem.options)))
    add_demand_at_most(model)
    add_capacity(model)
    add_running(model)
    add_packing(model)
    add_stock(model)
    model.program.sense = pulp.LpMaximize
    loads = [problem.loads[option.load] for option in problem.options]
    served = ((x, loads[o].rate_rps[b] / model.scale(o, b)) for (o, b), x in model.shares.items())
    model.program.setObjective(_linear(served))
    return model


def add_demand(model: MixModel) -> None:
    """demand[w,b]: all of a bucket is served."""
    _add_per_bucket(model, "demand", pulp.LpConstraintEQ)


def add_demand_at_most(model: MixModel) -> None:
    """demand_at_most[w,b]: no more of a bucket is served than there is."""
    _add_per_bucket(model, "demand_at_most", pulp.LpConstraintLE)


def add_capacity(model: MixModel) -> None:
    """capacity[o]: the loads that an option's buckets put on it add up to no more than its replicas carry."""
    for o, n in model.replicas.items():
        _add(model, f"capacity_{o}", [*_busy_replicas(model, o), (n, -model.problem.utilisation)], at_most=0)


def add_running(model: MixModel) -> None:
    """running[o,b]: a share goes to options that run, said apart where the load is too light for capacity to say it."""
    for (o, b), x in model.shares.items():
        if model.problem.replicas_per_share(o, b) < LIGHT_REPLICAS:
            _add(model, f"running_{o}_{b}", [(x, 1.0), (model.replicas[o], -1.0)], at_most=0)


def add_packing(model: MixModel) -> None:
    """packing[f]: replicas stand on GPUs of the units hired for them."""
    for f, m in model.units.items():
        taken = [(n, model.problem.options[o].slots) for o, n in model.replicas.items() if _supply(model, o) == f]
        _add(model, f"packing_{f}", [*taken, (m, -model.problem.supplies[f].slots)], at_most=0)


def add_stock(model: MixModel) -> None:
    """stock[f]: no more units than there are, plus the extra ones where the program may ask for some."""
    for f, m in model.units.items():
        if (available := model.problem.supplies[f].available) is not None:
            extra = [(model.extra_units[f], -1.0)] if f in model.extra_units else []
            _add(model, f"stock_{f}", [(m, 1.0), *extra], at_most=available)


def add_chosen_units(model: MixModel, units: Sequence[int]) -> None:
    """chosen_units[f]: no more units than another program has already chosen."""
    for f, m in model.units.items():
        _add(model, f"chosen_units_{f}", [(m, 1.0)], at_most=units[f])


def add_min_replicas(model: MixModel) -> None:
    """min_replicas[w]: a workload never runs on fewer replicas than it asks for."""
    for w, load in enumerate(model.problem.loads):
        if load.min_replicas:
            counts = [(n, -1.0) for o, n in model.replicas.items() if model.problem.options[o].load == w]
            _add(model, f"min_replicas_{w}", counts, at_most=-load.min_replicas)


def add_evenness(model: MixModel, replicas: Sequence[int]) -> None:
    """evenness[o]: no option is busier per replica than the workload's busiest."""
    for o in model.options:
        if busy := _busy_replicas(model, o):
            z = model.busiest[model.problem.options[o].load]
            _add(model, f"evenness_{o}", [*busy, (z, -float(replicas[o]))], at_most=0)


def _add_service(model: MixModel) -> None:
    """What every program that serves all demand on counts of its own has in common."""
    add_demand(model)
    add_capacity(model)
    add_running(model)
    add_packing(model)
    add_min_replicas(model)


def _shares(problem: MixProblem, *, options: Collection[int]) -> MixModel:
    model = MixModel(problem, pulp.LpProblem("mix", pulp.LpMinimize), tuple(options))
    for o in model.options:
        replica = problem.options[o]
        for b, rate_rps in enumerate(problem.loads[replica.load].rate_rps):
            if rate_rps > 0 and replica.max_rps[b] > 0:
                model.shares[o, b] = model.program.add_variable(f"share_{o}_{b}", 0)
    return model


def _counts_and_shares(problem: MixProblem, *, options: Collection[int]) -> MixModel:
    model = _shares(problem, options=options)
    for o in model.options:
        model.replicas[o] = model.program.add_variable(f"replicas_{o}", 0, None, pulp.LpInteger)
    for f in sorted({_supply(model, o) for o in model.options}):
        model.units[f] = model.program.add_variable(f"units_{f}", 0, None, pulp.LpInteger)
    return model


def _add_per_bucket(model: MixModel, name: str, sense: int) -> None:
    takers: dict[tuple[int, int], list[tuple[Variable, float]]] = {bucket: [] for bucket in model.problem.buckets()}
    for (o, b), x in model.shares.items():
        takers[model.problem.options[o].load, b].append((x, 1 / model.scale(o, b)))
    for (w, b), shares in takers.items():
        model.program.addConstraint(pulp.LpConstraint(_linear(shares), sense, f"{name}_{w}_{b}", 1))


def _busy_replicas(model: MixModel, option: int) -> list[tuple[Variable, float]]:
    rates = model.problem.loads[model.problem.options[option].load].rate_rps
    return [
        (model.shares[option, b], model.problem.replicas_per_share(option, b) / model.scale(option, b))
        for b in range(len(rates))
        if (option, b) in model.shares
    ]


def _counts(variables: dict[int, Variable], length: int) -> tuple[int, ...]:
    return tuple(round(variables[i].varValue or 0.0) if i in variables else 0 for i in range(length))


def _supply(model: MixModel, option: int) -> int:
    return model.problem.options[option].supply


def _add(model: MixModel, name: str, terms: Terms, *, at_most: float) -> None:
    model.program.addConstraint(pulp.LpConstraint(_linear(terms), pulp.LpConstraintLE, name, at_most))


def _minimise(model: MixModel, terms: Terms) -> None:
    model.program.setObjective(_linear(terms))


def _linear(terms: Terms) -> Any:
    return pulp.LpAffineExpression(list(terms))
