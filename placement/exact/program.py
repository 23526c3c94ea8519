"""A PuLP program with named constraints, and the certificate of its result."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pulp

from fleet.solvers import MIN_RUN_S, Deadline, Limits, Outcome, Solver, SolveStatus, run

LOAD_TIME = 3.0  # of the time that building a program takes: PuLP's transfer to HiGHS, which HiGHS' limit excludes

Variable = Any  # PuLP is published without types
Terms = Iterable[tuple[Variable, float]]


@dataclass(frozen=True)
class Program:
    name: str
    inner: pulp.LpProblem = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inner", pulp.LpProblem(self.name, pulp.LpMinimize))

    def binary(self, name: str) -> Variable:
        return self.inner.add_variable(name, 0, 1, pulp.LpInteger)

    def integer(self, name: str, *, upper: int) -> Variable:
        return self.inner.add_variable(name, 0, upper, pulp.LpInteger)

    def continuous(self, name: str, *, upper: float | None = None) -> Variable:
        return self.inner.add_variable(name, 0, upper, pulp.LpContinuous)

    def at_most(self, name: str, terms: Terms, limit: float) -> None:
        self.inner.addConstraint(pulp.LpConstraint(_linear(terms), pulp.LpConstraintLE, name, limit))

    def equal(self, name: str, terms: Terms, value: float) -> None:
        self.inner.addConstraint(pulp.LpConstraint(_linear(terms), pulp.LpConstraintEQ, name, value))

    def minimise(self, terms: Terms) -> None:
        self.inner.setObjective(_linear(terms))

    def run(self, *, solver: Solver, limits: Limits) -> Outcome:
        """Solve; the variables then hold the best values found.

        CBC 2.10.3 reports a program as infeasible when its time ends during preprocessing.  After the time limit an
        infeasible status therefore proves nothing.
        """
        started_s = limits.clock_s()
        outcome = run(self.inner, solver=solver, limits=limits)
        timed_out = limits.clock_s() - started_s >= limits.time_limit_s
        if outcome.status is SolveStatus.INFEASIBLE and timed_out:
            return Outcome(SolveStatus.TIME_LIMIT, -float("inf"))
        return outcome


@dataclass(frozen=True, slots=True)
class Certificate:
    """The value of a minimisation and its proven bound."""

    value: float
    bound: float  # no smaller value exists
    status: SolveStatus

    @property
    def gap(self) -> float:
        """(value - bound) / value: the maximum distance from the optimum."""
        return (self.value - self.bound) / self.value if self.value > 0 else 0.0


def limits_after_building(deadline: Deadline, *, begun_s: float) -> Limits:
    """The limits of a run that reserve the time for loading the program built since `begun_s` into the solver."""
    loading_s = LOAD_TIME * (deadline.limits.clock_s() - begun_s)
    return replace(deadline.limits, time_limit_s=max(MIN_RUN_S, deadline.left_s - loading_s))


def is_set(variable: Variable) -> bool:
    return (variable.varValue or 0.0) > 0.5


def _linear(terms: Terms) -> Any:
    return pulp.LpAffineExpression(list(terms))
