"""What-if analysis: a mix problem solved again with one change until the time runs out, and differences of results."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from fleet.errors import FleetwrightError
from fleet.solvers import MIN_RUN_S, Limits, Solver, SolveStatus, run
from planner.problem import Limit, LimitKind, MixProblem
from planner.solve import ilp
from planner.solve.dispatch import solve_mix
from planner.solve.fixed_counts import ROUNDING, Counts, at_counts, one_option_per_load, pruned
from planner.solve.solution import MixSolution

NOT_PROVEN = " (not proven: the time limit expired, a better one may exist)"
NEGLIGIBLE = 1e-6  # in any objective's unit: smaller differences are the solvers' rounding
NEGLIGIBLE_SHARE = 1e-5  # of an objective's value: the relative tolerance at which solvers end
ANY_MIX = 1.0  # a relative gap at which a solver stops at the first mix it finds
MIN_TIME_S = 0.005  # less time is not worth a solve
MAX_ESTIMATE_S = 0.5  # for a linear program
UNFINISHED = {SolveStatus.FEASIBLE, SolveStatus.TIME_LIMIT}
SOLVES_PER_TIME = 4  # each may take a quarter of the time left, so that a hard one leaves time for the next


class OutOfTimeError(FleetwrightError):
    """A solve on which others depend has no result in time; its caller catches the error."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """What the stock lacks, and which demand it leaves unserved."""

    extra_units: tuple[int, ...]  # per supply, beyond the stock, with the fewest GPUs in total
    unserved_rps: dict[tuple[int, int], float]  # (load, bucket) -> rate, when as much as possible is served


@dataclass(slots=True)
class SolveTime:
    total_s: float = 0.0
    overrun_s: float = 0.0  # the most that one took beyond its limit, to build its program for example
    is_cut: bool = False  # a solve ended at its time limit, or did not begin


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A problem, a solver and the time left.  None is the result of a solve for which time ran out."""

    problem: MixProblem
    solver: Solver
    limits: Limits
    deadline_s: float
    clock_s: Callable[[], float]
    time: SolveTime = field(default_factory=SolveTime, compare=False)
    known: list[tuple[frozenset[int], MixSolution]] = field(default_factory=list, compare=False)
    # Mixes of this very problem: the options left out of the search, and the best mix found without them.

    @property
    def has_time(self) -> bool:
        return self.clock_s() < self.deadline_s

    def cheapest(self) -> MixSolution:
        left_s = max(MIN_RUN_S, self.deadline_s - self.clock_s())
        return self._timed(self.problem, replace(self.limits, time_limit_s=min(self.limits.time_limit_s, left_s)))

    def within(self, seconds: float) -> Self:
        return replace(self, deadline_s=min(self.deadline_s, self.clock_s() + seconds))

    def with_problem(self, problem: MixProblem) -> Self:
        return replace(self, problem=problem, known=[])

    def solve(self, problem: MixProblem) -> MixSolution | None:
        return self._solve(problem, relative_gap=self.limits.relative_gap)

    def any_mix(self, problem: MixProblem) -> MixSolution | None:
        return self._solve(problem, relative_gap=ANY_MIX)

    def without_options(self, banned: Collection[int]) -> MixSolution | None:
        """The best mix that runs nothing on some options, no worse than any mix known to do so."""
        left_out = frozenset(banned)
        if self.problem.objective.is_price_only:  # a tie in another objective may differ in price
            for banned_before, mix in self.known:
                if mix.status is SolveStatus.OPTIMAL and banned_before <= left_out and not _uses(mix, left_out):
                    return mix
        problem = avoiding(self.problem, left_out)
        found = self.solve(problem)
        if found is None or found.status is SolveStatus.FEASIBLE:
            if (simple := self._simple(problem)) is not None:
                self.known.append((left_out, simple))
            found = None if found is None else self._pruned(problem, found)
        found = self.best_known(left_out, found)
        if found is not None and found.status.has_mix:
            self.known.append((left_out, found))
        return found

    def best_known(self, banned: Collection[int], found: MixSolution | None) -> MixSolution | None:
        """The mix found, or a better known one that also runs nothing on these options."""
        left_out = frozenset(banned)
        for _, mix in self.known:
            if mix.objective_value is None or _uses(mix, left_out):
                continue
            if found is None or found.objective_value is None:
                bound = next((other.bound for before, other in self.known if before <= left_out), mix.bound)
                found = replace(mix, status=SolveStatus.FEASIBLE, bound=bound)
            elif self.problem.objective.worsening(mix.objective_value, than=found.objective_value) < -ROUNDING:
                found = replace(mix, status=SolveStatus.FEASIBLE, bound=found.bound)
        return found

    def shortage(self) -> Shortage | None:
        missing, served = ilp.min_shortage(self.problem), ilp.max_served(self.problem)
        for model in (missing, served):
            limits = self._remaining()
            if limits is None or not run(model.program, solver=self.solver, limits=limits).status.has_mix:
                return None
        return Shortage(missing.counts_of_extra_units(), _unserved(served))

    def estimate_limits(self) -> Limits:
        left_s = self.deadline_s - self.clock_s()
        return replace(self.limits, time_limit_s=min(MAX_ESTIMATE_S, max(MIN_TIME_S, left_s)))

    def _solve(self, problem: MixProblem, *, relative_gap: float) -> MixSolution | None:
        limits = self._remaining()
        if limits is None:
            return None
        found = self._timed(problem, replace(limits, relative_gap=relative_gap))
        return None if found.status is SolveStatus.TIME_LIMIT else found

    def _timed(self, problem: MixProblem, limits: Limits) -> MixSolution:
        started_s = self.clock_s()
        found = solve_mix(problem, solver=self.solver, limits=limits)
        spent_s = self.clock_s() - started_s
        self.time.total_s += spent_s
        self.time.overrun_s = max(self.time.overrun_s, spent_s - limits.time_limit_s)
        self.time.is_cut |= found.status in UNFINISHED
        return found

    def _simple(self, problem: MixProblem) -> MixSolution | None:
        if self.clock_s() >= self.deadline_s or problem.erring_buckets or not problem.objective.serves_all:
            return None
        replicas = one_option_per_load(problem)
        if replicas is None:
            return None
        bound = next((mix.bound for before, mix in self.known if not before), 0.0)
        nothing = MixSolution.without_mix(problem, status=SolveStatus.FEASIBLE, bound=bound)
        return at_counts(problem, nothing, replicas)

    def _pruned(self, problem: MixProblem, found: MixSolution) -> MixSolution:
        limits = self._remaining()
        if limits is None or problem.erring_buckets or not problem.objective.serves_all:
            return found
        end_s = self.clock_s() + limits.time_limit_s

        def holds(replicas: Counts) -> bool:
            return self.clock_s() < end_s and at_counts(problem, found, replicas) is not None

        fewer = at_counts(problem, found, pruned(problem, found.replicas, holds=holds))
        if fewer is None or fewer.objective_value is None or found.objective_value is None:
            return found
        return fewer if problem.objective.worsening(fewer.objective_value, than=found.objective_value) < 0 else found

    def _remaining(self) -> Limits | None:
        left_s = (self.deadline_s - self.clock_s() - self.time.overrun_s) / SOLVES_PER_TIME
        if left_s <= MIN_TIME_S:
            self.time.is_cut = True
            return None
        return replace(self.limits, time_limit_s=left_s)


def avoiding(problem: MixProblem, banned: Collection[int]) -> MixProblem:
    change = problem.change
    counted = problem.objective.counts_switching or (change.max_started, change.max_stopped) != (None, None)
    if counted and banned:  # a program has no option without a route, so its stops would not be counted
        none = Limit("none of these", LimitKind.QUOTA, 0.0, replicas=dict.fromkeys(banned, 1.0))
        return replace(problem, limits=(*problem.limits, none))
    routes = (route for route in problem.routes if all(leg.option not in banned for leg in route.legs))
    return replace(problem, routes=tuple(routes))


def _uses(mix: MixSolution, options: Collection[int]) -> bool:
    return any(mix.replicas[o] for o in options)


def _unserved(model: ilp.MixModel) -> dict[tuple[int, int], float]:
    """The unserved rate of each bucket, without the solver's rounding."""
    loads = model.problem.loads
    left = {(w, b): loads[w].rate_rps[b] for w, b in model.problem.buckets()}
    for (r, b), share in model.shares_found().items():
        w = model.problem.routes[r].load
        left[w, b] -= share * loads[w].rate_rps[b]
    return {(w, b): rate_rps for (w, b), rate_rps in left.items() if rate_rps > 1e-6 * loads[w].rate_rps[b]}


def worse_by(problem: MixProblem, result: MixSolution, *, than: MixSolution) -> float | None:
    """In the objective's unit; negative if the first is better.  None if one of them has no mix."""
    if result.objective_value is None or than.objective_value is None:
        return None
    return problem.objective.worsening(result.objective_value, than=than.objective_value)


def negligible(amount: float, *, of: float) -> bool:
    """Whether a difference is within the solvers' rounding of the value that it belongs to."""
    return abs(amount) <= max(NEGLIGIBLE, NEGLIGIBLE_SHARE * abs(of))


def listed(items: Sequence[str], last: str) -> str:
    """`a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"
