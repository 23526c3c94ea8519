"""A PuLP program with named rows, and what is proven once it has been run (docs/placement/exact.md)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pulp

from fleet.solvers import MIN_RUN_S, Deadline, Limits, Outcome, Solver, SolveStatus, run

LOADING = 3.0  # times what building a program takes: PuLP's handing it to HiGHS, which no limit of HiGHS counts

Variable = Any  # PuLP is published without types
Terms = Iterable[tuple[Variable, float]]


@dataclass(frozen=True)
class Program:
    """To be minimised."""

    name: str
    inner: pulp.LpProblem = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inner", pulp.LpProblem(self.name, pulp.LpMinimize))

    def choice(self, name: str) -> Variable:
        """0 or 1."""
        return self.inner.add_variable(name, 0, 1, pulp.LpInteger)

    def count(self, name: str, *, most: int) -> Variable:
        """A whole number from 0 on."""
        return self.inner.add_variable(name, 0, most, pulp.LpInteger)

    def number(self, name: str, *, most: float | None = None) -> Variable:
        """From 0 on."""
        return self.inner.add_variable(name, 0, most, pulp.LpContinuous)

    def at_most(self, name: str, terms: Terms, limit: float) -> None:
        """A named row `terms <= limit`."""
        self.inner.addConstraint(pulp.LpConstraint(_linear(terms), pulp.LpConstraintLE, name, limit))

    def equal(self, name: str, terms: Terms, value: float) -> None:
        """A named row `terms = value`."""
        self.inner.addConstraint(pulp.LpConstraint(_linear(terms), pulp.LpConstraintEQ, name, value))

    def minimise(self, terms: Terms) -> None:
        """The objective."""
        self.inner.setObjective(_linear(terms))

    def run(self, *, solver: Solver, limits: Limits) -> Outcome:
        """Solve; the variables then carry the best values found.

        CBC 2.10.3, stopped while it still prepares, calls a program infeasible: past the limit that proves nothing.
        """
        started_s = limits.clock_s()
        outcome = run(self.inner, solver=solver, limits=limits)
        struck = limits.clock_s() - started_s >= limits.time_limit_s
        if outcome.status is SolveStatus.INFEASIBLE and struck:
            return Outcome(SolveStatus.TIME_LIMIT, -float("inf"))
        return outcome


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is known of a value that was to be as small as possible."""

    value: float
    bound: float  # proven: nothing smaller exists
    status: SolveStatus

    @property
    def gap(self) -> float:
        """(value - bound) / value: at most so far from the optimum."""
        return (self.value - self.bound) / self.value if self.value > 0 else 0.0


def after_building(deadline: Deadline, *, begun_s: float) -> Limits:
    """The limits of a run of what has been built since then: so that loading it ends in time as well."""
    loading_s = LOADING * (deadline.limits.clock_s() - begun_s)
    return replace(deadline.limits, time_limit_s=max(MIN_RUN_S, deadline.left_s - loading_s))


def is_set(variable: Variable) -> bool:
    """What a solver found for a choice."""
    return (variable.varValue or 0.0) > 0.5


def _linear(terms: Terms) -> Any:
    return pulp.LpAffineExpression(list(terms))
