"""Binding requirements with their prices: the gain of relaxing each by one step.

A price is the difference between two proven plans: the request, and the request with one requirement relaxed.  The
search drops requirements in groups; if the plan does not improve without a group, none of its members binds.  If time
runs out, a shadow price of P1's LP relaxation replaces the difference, and the basis states it.  In the relaxation a
whole step never gains more than its shadow price, because the optimum is convex in the right-hand side.  With whole
counts it may gain more or less.  The shadow price of a power domain's row is the value of one more kW.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite

import pulp
from pydantic import Field

from fleet.documents import Frozen
from fleet.solvers import Deadline, Limits, Solver, SolveStatus, run
from planner.explain.constraints import Kind, Requirement, requirements, without
from planner.explain.what_if import NEGLIGIBLE, WhatIf, worse_by
from planner.problem import LimitKind, MixProblem
from planner.solve import resilience
from planner.solve.ilp.model import MixModel
from planner.solve.ilp.programs import cheapest
from planner.solve.solution import MixSolution

W_PER_KW = 1000.0


@dataclass(frozen=True, slots=True)
class Relaxation:
    per_row: Mapping[str, float]  # shadow price, in the objective's unit per unit of the row's right-hand side
    units: Mapping[int, float]


class Basis(StrEnum):
    """Where a price comes from."""

    PROVEN = "proven"  # the difference of two proven plans
    FOUND = "found"  # the difference of two plans, at least one of which is not proven
    ESTIMATE = "estimate"  # a shadow price of the LP relaxation


class Price(Frozen):
    """A requirement that binds."""

    kind: Kind
    name: str
    step: float | None = Field(description="In the requirement's own unit; absent if it cannot hold in part.")
    easing: str = Field(description="The step as text.")
    saves: float = Field(ge=0, description="By one step, in the objective's unit.")
    saves_without: float | None = Field(default=None, ge=0, description="If it is dropped, in the objective's unit.")
    basis: Basis


class Prices(Frozen):
    """All binding requirements, the highest price first.  `complete`: the others are known not to bind alone."""

    binding: tuple[Price, ...] = ()
    saves_together: float | None = Field(default=None, description="If all requirements but the demand are dropped.")
    complete: bool = False


def prices(what_if: WhatIf, solution: MixSolution) -> Prices:
    """The prices of a plan's requirements, except the demand."""
    limiting = [part for part in requirements(what_if.problem) if part.kind is not Kind.DEMAND]
    if not solution.status.has_mix or not limiting:
        return Prices(complete=True)
    search = _Search(what_if, solution)
    found = [search.price(part, dropped) for part, dropped in search.binding(limiting)]
    ranked = sorted(found, key=lambda price: (-price.saves, -(price.saves_without or 0.0)))
    return Prices(binding=tuple(ranked), saves_together=search.together, complete=not search.cut_short)


def as_text(found: Prices, problem: MixProblem) -> Iterator[str]:
    for price in found.binding:
        yield _line(price, problem)
    if found.binding or not requirements(problem):
        return
    if not found.complete:
        yield "which limits bind is not known: the time limit expired"
    elif found.saves_together is not None and found.saves_together > NEGLIGIBLE:
        yield f"no limit binds alone; without any the plan would {problem.objective.gain(found.saves_together)}"
    else:
        yield "no limit binds: the demand alone sets the price"


class _Search:
    def __init__(self, what_if: WhatIf, solution: MixSolution) -> None:
        self.what_if = what_if
        self.solution = solution
        self.together: float | None = None
        self.cut_short = False
        self._relaxation: Relaxation | None = None

    def binding(self, group: Sequence[Requirement]) -> Iterator[tuple[Requirement, MixSolution | None]]:
        """The members of a group without which the plan improves, each with the plan without it."""
        result = self.what_if.solve(without(self.what_if.problem, group))
        saved = self._saved(result)
        if self.together is None:
            self.together = saved
        if result is not None and saved is not None and saved <= NEGLIGIBLE:
            self.cut_short |= result.status is not SolveStatus.OPTIMAL  # a better mix may have been missed
            return
        if len(group) > 1 and result is not None:
            middle = len(group) // 2
            yield from self.binding(group[:middle])
            yield from self.binding(group[middle:])
        elif result is not None:
            yield group[0], result
        else:
            self.cut_short = True
            yield from ((part, None) for part in group if self._estimate(part) > NEGLIGIBLE)

    def price(self, part: Requirement, dropped: MixSolution | None) -> Price:
        step = min(part.step, part.most) if isfinite(part.step) else inf
        whole = step >= part.most
        result = dropped if whole or dropped is None else self.what_if.solve(part.ease(self.what_if.problem, step))
        saved = self._saved(result)
        if saved is None or result is None:
            saves, basis = self._estimate(part), Basis.ESTIMATE
        else:
            proven = {result.status, self.solution.status} == {SolveStatus.OPTIMAL}
            saves, basis = saved, Basis.PROVEN if proven else Basis.FOUND
        return Price(
            kind=part.kind,
            name=part.name,
            step=step if isfinite(step) else None,
            easing=part.easing(step),
            saves=max(0.0, saves),
            saves_without=self._saved(dropped),
            basis=basis,
        )

    def _saved(self, result: MixSolution | None) -> float | None:
        if result is None or (worse := worse_by(self.what_if.problem, result, than=self.solution)) is None:
            return None
        return max(0.0, -worse)

    def _estimate(self, part: Requirement) -> float:
        """The shadow price, 0 if the requirement is not a single row."""
        problem = self.what_if.problem
        if not problem.objective.serves_all or not (row := _row(part)):
            return 0.0
        if self._relaxation is None:
            self._relaxation = relaxation(problem, limits=self.what_if.estimate_limits()) or Relaxation({}, {})
        return self._relaxation.per_row.get(row, 0.0) * _right_hand_side(part, problem, self._relaxation)


def _row(part: Requirement) -> str | None:
    """Its row of P1 (docs/explanation/planner/formulation.md, section 3)."""
    rows = {
        Kind.STOCK: f"stock_{part.position}",
        Kind.MIN_REPLICAS: f"min_replicas_{part.position}",
        Kind.STARTS: "starts",
        Kind.STOPS: "stops",
    }
    caps = (Kind.QUOTA, Kind.POWER, Kind.BUDGET, Kind.SPOT)
    return f"limit_{part.position}" if part.kind in caps else rows.get(part.kind)


def _right_hand_side(part: Requirement, problem: MixProblem, relaxed: Relaxation) -> float:
    """The change of the row's right-hand side by one step."""
    if part.kind in {Kind.QUOTA, Kind.POWER, Kind.BUDGET, Kind.SPOT}:
        limit = problem.limits[part.position]
        scale = max(1.0, *map(abs, (*limit.units.values(), *limit.replicas.values())))
        gpus = sum(problem.supplies[f].slots * count for f, count in relaxed.units.items() if f in limit.units)
        return part.step * (gpus if part.kind is Kind.SPOT else 1.0) / scale
    return part.step


def _line(price: Price, problem: MixProblem) -> str:
    if price.step is None:
        return f"{price.name} costs {problem.objective.with_unit(price.saves)}"
    if price.basis is Basis.ESTIMATE:
        about = f"would {problem.objective.gain(price.saves)} approximately"
        return f"{price.name} binds: {price.easing} {about}, estimated in fractional replicas because time ran out"
    if price.saves > NEGLIGIBLE:
        return f"{price.name} binds: {price.easing} would {problem.objective.gain(price.saves)}"
    dropped = problem.objective.gain(price.saves_without or 0.0)
    return f"{price.name} binds: {price.easing} would {problem.objective.no_gain_text}, dropping it would {dropped}"


def relaxation(problem: MixProblem, *, limits: Limits) -> Relaxation | None:
    """None if the relaxation has no optimum, or none within the limits."""
    model = _relaxed(problem, limits)
    for variable in model.program.variables():
        variable.cat = pulp.LpContinuous
    if not run(model.program, solver=Solver.HIGHS, limits=limits).status.has_mix:
        return None
    rows = {row.name: max(0.0, -(row.pi or 0.0)) for row in model.program.constraints()}
    return Relaxation(rows, {f: m.varValue or 0.0 for f, m in model.units.items()})


def _relaxed(problem: MixProblem, limits: Limits) -> MixModel:
    if not problem.losses:
        return cheapest(problem, routes=range(len(problem.routes)))
    return resilience.relaxed(problem, deadline=Deadline.of(limits))


class DomainWatts(Frozen):
    """One power domain in a plan."""

    name: str
    limit_w: float
    planned_w: float = Field(ge=0, description="Of the plan's replicas in this domain, as the limit counts them.")
    usd_per_kw_h: float | None = Field(
        description="Saving of one more kW, $/h, in fractional replicas; absent for objectives other than cost."
    )


def domain_watts(problem: MixProblem, solution: MixSolution, *, limits: Limits) -> tuple[DomainWatts, ...]:
    domains = [limit for limit in problem.limits if limit.kind is LimitKind.POWER]
    if not domains or not solution.status.has_mix:
        return ()
    worth = usd_per_kw_h(problem, limits=limits) if problem.objective.counts_price else {}
    return tuple(
        DomainWatts(
            name=limit.name,
            limit_w=limit.at_most,
            planned_w=sum(w * solution.replicas[o] for o, w in limit.replicas.items()),
            usd_per_kw_h=worth.get(limit.name),
        )
        for limit in domains
    )


def usd_per_kw_h(problem: MixProblem, *, limits: Limits) -> Mapping[str, float]:
    """By power domain; empty without a feasible mix or without a result in time."""
    relaxed = relaxation(problem, limits=limits)
    if relaxed is None:
        return {}
    prices: dict[str, float] = {}
    for position, limit in enumerate(problem.limits):
        if limit.kind is LimitKind.POWER:
            scale = max(1.0, *limit.replicas.values(), 0.0)  # of the row, see add_limit
            prices[limit.name] = relaxed.per_row.get(f"limit_{position}", 0.0) / scale * W_PER_KW
    return prices
