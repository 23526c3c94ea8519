"""Irreducible infeasible subsets (IIS): requirements that cannot all hold, and the least relaxation of each.

QuickXplain (Junker, AAAI 2004) finds an irreducible conflict.  Duality proves that no smaller one exists (Ignatiev,
Previti, Liffiton and Marques-Silva, CP 2015): every satisfiable set leaves out a member of every conflict.  A smallest
hitting set of these complements is therefore either a smallest conflict, or satisfiable; then it is extended to a
maximal satisfiable set and gives one more complement to hit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from math import ceil, inf, isfinite

from pydantic import Field

from fleet.documents import Frozen
from fleet.solvers import SolveStatus
from planner.explain.constraints import Kind, Requirement, requirements, without
from planner.explain.what_if import OutOfTimeError, WhatIf, listed
from planner.objectives import COST, ENERGY
from planner.problem import Limit, MixProblem
from planner.solve.solution import MixSolution

ROUNDING = 1e-6  # of a number of grains
COARSE = 100  # grains of a step, for limits without a grain that no single solve minimises
MAX_CONFLICTS = 3  # reported for one request

Set = frozenset[int]


class MinimalRelaxation(Frozen):
    """The least relaxation of one requirement."""

    kind: Kind
    requirement: str
    amount: float | None = Field(description="In the requirement's own unit; absent if it cannot hold in part.")
    easing: str = Field(description="The same as text.")
    least: bool = Field(description="Whether a smaller amount is proven not to suffice.")


class Proof(StrEnum):
    """What is proven about the size of a conflict."""

    SMALLEST = "smallest"  # no conflict has fewer members
    IRREDUCIBLE = "irreducible"  # without any one of its members the others are satisfiable


class Conflict(Frozen):
    """Requirements that cannot all hold.  Any one of the ways out resolves the conflict."""

    requirements: tuple[str, ...]
    kinds: tuple[Kind, ...]
    proof: Proof
    ways_out: tuple[MinimalRelaxation, ...] = ()


def conflicts(what_if: WhatIf, *, relaxed: bool = True) -> tuple[Conflict, ...]:
    """Conflicts of an infeasible problem, which share nothing but demand; empty if none was found in time."""
    strict = _strict(what_if.problem)
    parts = requirements(strict)
    found: list[tuple[tuple[Requirement, ...], Proof]] = []
    try:
        while len(found) < MAX_CONFLICTS:
            rest = [part for part in parts if not any(part in _settling(members) for members, _ in found)]
            problem = without(strict, [part for part in parts if part not in rest])
            search = _Search(what_if, problem, rest)
            if search.holds(frozenset(range(len(rest)))):
                break
            members, proof = search.smallest()
            found.append((tuple(rest[i] for i in sorted(members)), proof))
    except OutOfTimeError:
        pass
    return tuple(_conflict(what_if, strict, members, proof, found, relaxed=relaxed) for members, proof in found)


def as_text(conflict: Conflict) -> str:
    line = _cannot_hold(conflict)
    settled = [way.easing for way in conflict.ways_out]
    if not settled:
        return line
    if len(settled) == 1:
        return f"{line}; {settled[0]} would do"
    return f"{line}; any one of these changes would do: {listed(settled, 'or')}"


def _cannot_hold(conflict: Conflict) -> str:
    names = conflict.requirements
    if len(names) == 1:
        return f"{names[0]} cannot be met, whatever the other limits"
    return f"{listed(names, 'and')} cannot {'both' if len(names) == 2 else 'all'} hold"


@dataclass(slots=True)
class _Search:
    """Which of these requirements can hold together, with the rest of the problem."""

    what_if: WhatIf
    problem: MixProblem
    parts: Sequence[Requirement]
    holding: list[Set] = field(default_factory=list)  # satisfiable sets
    clashing: list[Set] = field(default_factory=list)  # unsatisfiable sets

    def smallest(self) -> tuple[Set, Proof]:
        """A smallest conflict, or, if time runs out before the proof, an irreducible one."""
        everything = frozenset(range(len(self.parts)))
        conflict = self._irreducible(frozenset(), frozenset(), sorted(everything))
        try:
            while conflict:
                hit = smallest_hitting_set([everything - kept for kept in self.holding])
                if len(hit) >= len(conflict):
                    break
                if not self.holds(hit):
                    conflict = hit
                    break
                self._grow(hit)
        except OutOfTimeError:
            return conflict, Proof.IRREDUCIBLE
        return conflict, Proof.SMALLEST

    def holds(self, kept: Set) -> bool:
        if any(kept <= known for known in self.holding):
            return True
        if any(kept >= known for known in self.clashing):
            return False
        result = self.mix(kept)
        if result.status.has_mix:
            self.holding.append(kept | self._met_anyway(result))
            return True
        self.clashing.append(kept)
        return False

    def mix(self, kept: Set) -> MixSolution:
        dropped = [part for i, part in enumerate(self.parts) if i not in kept]
        result = self.what_if.any_mix(without(self.problem, dropped))
        if result is None:
            raise OutOfTimeError
        return result

    def _irreducible(self, kept: Set, added: Set, candidates: Sequence[int]) -> Set:
        """QuickXplain: the requirements that make a conflict together with `kept`."""
        if added and not self.holds(kept):
            return frozenset()
        if len(candidates) == 1:
            return frozenset(candidates)
        first, second = candidates[: len(candidates) // 2], candidates[len(candidates) // 2 :]
        upper = self._irreducible(kept | set(first), frozenset(first), second)
        lower = self._irreducible(kept | upper, upper, first)
        return upper | lower

    def _grow(self, kept: Set) -> None:
        """Extend a satisfiable set to a maximal one."""
        reduce(self._with, range(len(self.parts)), kept)

    def _with(self, kept: Set, part: int) -> Set:
        grown = next((known for known in reversed(self.holding) if kept <= known), kept)
        more = grown | {part}
        return more if part in grown or self.holds(more) else grown

    def _met_anyway(self, result: MixSolution) -> Set:
        return frozenset(
            i
            for i, part in enumerate(self.parts)
            if part.slack is not None and part.slack(result.units, result.replicas) >= 0
        )


def _conflict(
    what_if: WhatIf,
    strict: MixProblem,
    members: tuple[Requirement, ...],
    proof: Proof,
    found: Sequence[tuple[tuple[Requirement, ...], Proof]],
    *,
    relaxed: bool,
) -> Conflict:
    others = (part for other, _ in found if other is not members for part in _settling(other))
    problem = without(strict, others)
    return Conflict(
        requirements=tuple(part.name for part in members),
        kinds=tuple(part.kind for part in members),
        proof=proof,
        ways_out=tuple(minimal_relaxations(what_if, problem, members)) if relaxed else (),
    )


def _settling(members: Sequence[Requirement]) -> Sequence[Requirement]:
    """The requirements that the next search drops: the limits of a conflict, or its demand if it has none."""
    return [part for part in members if part.kind is not Kind.DEMAND] or members


def _strict(problem: MixProblem) -> MixProblem:
    """Without demand if the objective may leave demand unserved: the limits alone must be satisfiable."""
    if problem.objective.serves_all:
        return problem
    idle = (replace(load, rate_rps=(0.0,) * len(load.rate_rps), min_replicas=0) for load in problem.loads)
    return replace(problem, objective=COST, loads=tuple(idle))


def smallest_hitting_set(sets: Sequence[Set]) -> Set:
    """By iterative deepening over the number of members.  Every set must have a member."""
    size = 0
    while (found := _within(sets, frozenset(), size)) is None:
        size += 1
    return found


def _within(sets: Sequence[Set], chosen: Set, left: int) -> Set | None:
    open_sets = [members for members in sets if members.isdisjoint(chosen)]
    if not open_sets:
        return chosen
    if not left:
        return None
    fewest: Set = min(open_sets, key=len)
    for member in sorted(fewest):
        if (found := _within(open_sets, chosen | {member}, left - 1)) is not None:
            return found
    return None


def minimal_relaxations(
    what_if: WhatIf, problem: MixProblem, members: Sequence[Requirement]
) -> Iterator[MinimalRelaxation]:
    """One per requirement that resolves the conflict alone; those without a result in time are left out."""
    for part in members:
        try:
            found = _least(what_if, problem, part)
        except OutOfTimeError:
            continue
        if found is not None:
            amount, least = found
            yield MinimalRelaxation(
                kind=part.kind,
                requirement=part.name,
                amount=amount if isfinite(amount) else None,
                easing=part.easing(amount),
                least=least,
            )


def _least(what_if: WhatIf, problem: MixProblem, part: Requirement) -> tuple[float, bool] | None:
    """The least amount, and whether it is proven.  None: dropping the requirement does not suffice."""
    if (aimed := _aimed_at(problem, part)) is not None:
        result = what_if.solve(aimed)
        if result is None:
            raise OutOfTimeError
        if result.objective_value is None:
            return None
        excess = result.objective_value - problem.limits[part.position].at_most
        return max(excess, 0.0), result.status is SolveStatus.OPTIMAL
    if not _holds(what_if, part.dropped(problem)):
        return None
    if not isfinite(part.grain):
        return inf, True
    grain = part.grain or part.step / COARSE
    low, high = 0, ceil(part.most / grain - ROUNDING) if isfinite(part.most) else 1
    while not isfinite(part.most) and not _holds(what_if, part.ease(problem, high * grain)):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _holds(what_if, part.ease(problem, middle * grain)) else (middle, high)
    return min(high * grain, part.most), True


def _holds(what_if: WhatIf, problem: MixProblem) -> bool:
    result = what_if.any_mix(problem)
    if result is None:
        raise OutOfTimeError
    return result.status.has_mix


def _aimed_at(problem: MixProblem, part: Requirement) -> MixProblem | None:
    """The problem without a limit, with an objective that minimises what the limit counts."""
    if part.kind not in {Kind.POWER, Kind.BUDGET}:
        return None
    limit = problem.limits[part.position]
    weights = [*limit.units.values(), *limit.replicas.values()]
    if (limit.units and limit.replicas) or min(weights, default=-1.0) < 0:
        return None
    dropped = part.dropped(problem)
    return _counting_units(dropped, limit) if limit.units else _counting_replicas(dropped, limit)


def _counting_units(problem: MixProblem, limit: Limit) -> MixProblem:
    supplies = (replace(supply, price_usd_per_h=limit.units.get(f, 0.0)) for f, supply in enumerate(problem.supplies))
    return replace(problem, supplies=tuple(supplies), objective=COST)


def _counting_replicas(problem: MixProblem, limit: Limit) -> MixProblem:
    options = (
        replace(option, idle_w=limit.replicas.get(o, 0.0), busy_w=0.0) for o, option in enumerate(problem.options)
    )
    return replace(problem, options=tuple(options), objective=ENERGY)
