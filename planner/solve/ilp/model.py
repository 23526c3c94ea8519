"""A PuLP program and its variables (docs/explanation/planner/formulation.md, section 2)."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pulp

from planner.problem import Leg, MixProblem, Route

Variable = Any  # PuLP has no type hints
Terms = Iterable[tuple[Variable, float]]
ShareKey = tuple[int, int]  # route and bucket


class Rows:
    """Variables and rows of a PuLP program."""

    program: pulp.LpProblem

    def add_variable(self, name: str, *, integer: bool = False) -> Variable:
        return self.program.add_variable(name, 0, None, pulp.LpInteger if integer else pulp.LpContinuous)

    def at_most(self, name: str, terms: Terms, limit: float) -> None:
        self.program.addConstraint(pulp.LpConstraint(linear(terms), pulp.LpConstraintLE, name, limit))

    def equal(self, name: str, terms: Terms, value: float) -> None:
        self.program.addConstraint(pulp.LpConstraint(linear(terms), pulp.LpConstraintEQ, name, value))

    def optimise(self, terms: Terms) -> None:
        self.program.setObjective(linear(terms))


@dataclass(frozen=True)
class MixModel(Rows):
    """One program over some of a problem's routes."""

    problem: MixProblem
    routes: tuple[int, ...]  # that the program may use
    program: pulp.LpProblem = field(default_factory=lambda: pulp.LpProblem("mix", pulp.LpMinimize))
    units: dict[int, Variable] = field(default_factory=dict)  # m[f]
    replicas: dict[int, Variable] = field(default_factory=dict)  # n[o]
    shares: dict[ShareKey, Variable] = field(default_factory=dict)  # x[r, b] times scale(r, b)
    own_units: dict[int, Variable] = field(default_factory=dict)  # k[o], if nodes are not shared
    left: dict[tuple[int, int], Variable] = field(default_factory=dict)  # c[k,o], if failure k leaves some of o
    most: Mapping[int, float] = field(default_factory=dict)  # known bounds on the replicas of any better mix
    started: dict[int, Variable] = field(default_factory=dict)  # u[o], if change counts
    stopped: dict[int, Variable] = field(default_factory=dict)  # v[o], if change counts
    extra_units: dict[int, Variable] = field(default_factory=dict)  # e[f], only in `min_shortage`
    busiest: dict[int, Variable] = field(default_factory=dict)  # z[w], only in `min_max_load`

    @cached_property
    def options(self) -> tuple[int, ...]:
        return tuple(sorted({leg.option for r in self.routes for leg in self.problem.routes[r].legs}))

    @cached_property
    def legs_through(self) -> dict[int, list[tuple[int, Route, Leg]]]:
        """Option -> its routes, each with its index and its leg there."""
        through: dict[int, list[tuple[int, Route, Leg]]] = {o: [] for o in self.options}
        for r in self.routes:
            route = self.problem.routes[r]
            for leg in route.legs:
                through[leg.option].append((r, route, leg))
        return through

    def scale(self, route: int, bucket: int) -> float:
        """The scale of a share's column, with which no coefficient exceeds 1."""
        way = self.problem.routes[route]
        return max(1.0, *(self.problem.replicas_per_share(way, leg, bucket) for leg in way.legs))

    def needed(self, option: int) -> Iterator[tuple[Variable, float]]:
        for r, route, leg in self.legs_through[option]:
            for b in range(len(leg.max_rps)):
                if (r, b) in self.shares:
                    per_share = self.problem.replicas_per_share(route, leg, b)
                    yield self.shares[r, b], per_share / self.scale(r, b)

    def shares_found(self) -> dict[ShareKey, float]:
        """After a run: (route, bucket) -> share, with the solver's rounding."""
        return {(r, b): (x.varValue or 0.0) / self.scale(r, b) for (r, b), x in self.shares.items()}

    def counts_of_units(self) -> tuple[int, ...]:
        return _counts(self.units, len(self.problem.supplies))

    def counts_of_extra_units(self) -> tuple[int, ...]:
        return _counts(self.extra_units, len(self.problem.supplies))

    def counts_of_replicas(self) -> tuple[int, ...]:
        return _counts(self.replicas, len(self.problem.options))


def linear(terms: Terms) -> Any:
    return pulp.LpAffineExpression(list(terms))


def with_shares(problem: MixProblem, *, routes: Collection[int]) -> MixModel:
    """A program with a share for each bucket with demand and each of these routes that serves it."""
    model = MixModel(problem, tuple(routes))
    for r in model.routes:
        route = problem.routes[r]
        for b, rate_rps in enumerate(problem.loads[route.load].rate_rps):
            if rate_rps > 0 and route.serves(b):
                model.shares[r, b] = model.add_variable(f"share_{r}_{b}")
    return model


def with_counts(
    problem: MixProblem, *, routes: Collection[int], shares: bool = True, most: Mapping[int, float] | None = None
) -> MixModel:
    """The same with the counts of the options on these routes and of their supplies; or these alone, within bounds."""
    model = with_shares(problem, routes=routes) if shares else MixModel(problem, tuple(routes), most=most or {})
    for o in model.options:
        model.replicas[o] = model.add_variable(f"replicas_{o}", integer=True)
        if problem.own_nodes:
            model.own_units[o] = model.add_variable(f"own_units_{o}", integer=True)
    for f in sorted({problem.options[o].supply for o in model.options}):
        model.units[f] = model.add_variable(f"units_{f}", integer=True)
    for o, count in model.most.items():
        if o in model.replicas:
            model.replicas[o].upBound = count
    return model


def _counts(variables: dict[int, Variable], length: int) -> tuple[int, ...]:
    return tuple(round(variables[i].varValue or 0.0) if i in variables else 0 for i in range(length))
