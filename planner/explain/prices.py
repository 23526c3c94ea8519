"""Binding requirements with their prices: the gain of relaxing each by one step.

A price is the difference between two proven plans: the request, and the request with one requirement relaxed.  The
search drops requirements in groups; if the plan does not improve without a group, none of its members binds.  If time
runs out, a shadow price of the LP relaxation replaces the difference, and the basis states it.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from math import inf, isfinite

from pydantic import Field

from fleet.documents import Frozen
from fleet.solvers import SolveStatus
from planner.explain.constraints import Kind, Requirement, requirements, without
from planner.explain.deltas import NEGLIGIBLE, worse_by
from planner.explain.shadow_prices import Relaxation, relaxation
from planner.explain.what_if import WhatIf
from planner.problem import MixProblem
from planner.solve.solution import MixSolution


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
        answer = self.what_if.solve(without(self.what_if.problem, group))
        saved = self._saved(answer)
        if self.together is None:
            self.together = saved
        if answer is not None and saved is not None and saved <= NEGLIGIBLE:
            self.cut_short |= answer.status is not SolveStatus.OPTIMAL  # a better mix may have been missed
            return
        if len(group) > 1 and answer is not None:
            middle = len(group) // 2
            yield from self.binding(group[:middle])
            yield from self.binding(group[middle:])
        elif answer is not None:
            yield group[0], answer
        else:
            self.cut_short = True
            yield from ((part, None) for part in group if self._estimate(part) > NEGLIGIBLE)

    def price(self, part: Requirement, dropped: MixSolution | None) -> Price:
        step = min(part.step, part.most) if isfinite(part.step) else inf
        whole = step >= part.most
        answer = dropped if whole or dropped is None else self.what_if.solve(part.ease(self.what_if.problem, step))
        saved = self._saved(answer)
        if saved is None or answer is None:
            saves, basis = self._estimate(part), Basis.ESTIMATE
        else:
            proven = {answer.status, self.solution.status} == {SolveStatus.OPTIMAL}
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

    def _saved(self, answer: MixSolution | None) -> float | None:
        if answer is None or (worse := worse_by(self.what_if.problem, answer, than=self.solution)) is None:
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
