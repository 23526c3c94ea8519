"""Runners-up: the next best mixes that differ in their GPU types.

Each lacks at least one GPU type of every better mix in the list.  One more replica, or one more type beside the same
ones, is not a different mix.  The search branches on the type to leave out (Lawler, Management Science 18, 1972): each
mix that lacks one of a mix's types is found in one of as many subproblems.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite

from pydantic import Field

from fleet.documents import Frozen
from fleet.solvers import SolveStatus
from planner.explain.what_if import NEGLIGIBLE, NOT_PROVEN, WhatIf, listed, worse_by
from planner.problem import MixProblem
from planner.solve.solution import MixSolution

RUNNERS_UP = 3

Types = frozenset[str]


class RunnerUp(Frozen):
    """Another mix and its distance from the plan."""

    without: tuple[str, ...] = Field(description="GPU types that were left out, or options if all are of one type.")
    replicas: Mapping[str, int] = Field(description="Option -> replicas.")
    cost_usd_per_h: float = Field(ge=0)
    worse_by: float = Field(description="Than the plan, in the objective's unit.")
    proven: bool = Field(description="Whether no such mix lies between this one and the one before.")


def runners_up(what_if: WhatIf, solution: MixSolution, *, count: int = RUNNERS_UP) -> tuple[RunnerUp, ...]:
    if not solution.status.has_mix:
        return ()
    search = _Search(what_if, type_names(what_if.problem), solution)
    found: list[tuple[Types, MixSolution, bool]] = []
    for banned, result in search.in_order():
        if len(found) == count:
            break
        if any(result.replicas):
            found.append((banned, result, search.complete))
    return tuple(
        _runner_up(what_if.problem, banned, result, solution, proven=proven)
        for banned, result, proven in search.improved(found)
    )


def as_text(runner_up: RunnerUp, problem: MixProblem) -> str:
    mix = ", ".join(f"{count} x {name}" for name, count in runner_up.replicas.items()) or "nothing"
    line = f"next without {listed(runner_up.without, 'and')}: {mix} at {runner_up.cost_usd_per_h:.2f} $/h"
    doubt = "" if runner_up.proven else NOT_PROVEN
    if runner_up.worse_by <= NEGLIGIBLE:
        return f"{line}, as good as the plan{doubt}"
    base = runner_up.cost_usd_per_h - runner_up.worse_by
    relative = f" ({runner_up.worse_by / base:.1%})" if problem.objective.is_price_only and base > 0 else ""
    return f"{line}, {problem.objective.with_unit(runner_up.worse_by)}{relative} {problem.objective.worse}{doubt}"


def type_names(problem: MixProblem) -> tuple[str, ...]:
    """Per option, its GPU type, or its own name if all are of one type."""
    gpus = tuple(option.gpu for option in problem.options)
    return gpus if len(set(gpus)) > 1 else tuple(option.name for option in problem.options)


@dataclass(slots=True)
class _Search:
    """A best-first search over sets of types to leave out."""

    what_if: WhatIf
    types: tuple[str, ...]  # per option
    plan: MixSolution
    complete: bool = True  # every subproblem so far is proven
    solved: set[Types] = field(default_factory=set)
    open: list[tuple[float, tuple[str, ...], MixSolution]] = field(default_factory=list)

    def in_order(self) -> Iterator[tuple[Types, MixSolution]]:
        """Mixes that lack a type of each better one, the best first."""
        reported = [self.used(self.plan)]
        self.branch(frozenset(), reported[0])
        while self.open:
            _, names, result = heapq.heappop(self.open)
            banned = frozenset(names)
            contained = next((types for types in reported if types <= self.used(result)), None)
            if contained is None:
                yield banned, result
                reported.append(self.used(result))
                contained = self.used(result)
            self.branch(banned, contained)

    def branch(self, banned: Types, used: Types) -> None:
        for name in sorted(used):
            more = banned | {name}
            if more in self.solved:
                continue
            self.solved.add(more)
            result = self.what_if.without_options(self.options_of(more))
            self.complete &= result is not None and result.status is not SolveStatus.FEASIBLE
            if result is not None and isfinite(rank := self.rank(result)):
                heapq.heappush(self.open, (rank, tuple(sorted(more)), result))

    def improved(self, found: list[tuple[Types, MixSolution, bool]]) -> Iterator[tuple[Types, MixSolution, bool]]:
        """The same mixes, each replaced by a better known one, in order."""
        if all(proven for _, _, proven in found):
            yield from found
            return
        best = [(banned, self.what_if.best_known(self.options_of(banned), result), ok) for banned, result, ok in found]
        reported = [self.used(self.plan)]
        for banned, result, ok in sorted(best, key=lambda entry: self.rank(entry[1])):
            if result is not None and not any(types <= self.used(result) for types in reported):
                yield banned, result, ok
                reported.append(self.used(result))

    def rank(self, result: MixSolution | None) -> float:
        worse = None if result is None else worse_by(self.what_if.problem, result, than=self.plan)
        return inf if worse is None else round(worse, 9)

    def options_of(self, types: Types) -> list[int]:
        return [o for o, kind in enumerate(self.types) if kind in types]

    def used(self, result: MixSolution) -> Types:
        return frozenset(name for name, count in zip(self.types, result.replicas, strict=True) if count)


def _runner_up(problem: MixProblem, banned: Types, result: MixSolution, plan: MixSolution, *, proven: bool) -> RunnerUp:
    replicas: Counter[str] = Counter()  # options of several workloads may have one name
    for option, count in zip(problem.options, result.replicas, strict=True):
        replicas[option.name] += count
    return RunnerUp(
        without=tuple(sorted(banned)),
        replicas=+replicas,
        cost_usd_per_h=result.cost_usd_per_h or 0.0,
        worse_by=max(0.0, worse_by(problem, result, than=plan) or 0.0),
        proven=proven and plan.status is SolveStatus.OPTIMAL,
    )
