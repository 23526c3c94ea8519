"""Follow-up questions to a mix problem, asked until the time is up: the same problem again with one thing changed."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Self

from fleet.errors import FleetwrightError
from fleet.solvers import Limits, Solver, SolveStatus, run
from planner.problem import Limit, LimitKind, MixProblem
from planner.solve import ilp
from planner.solve.dispatch import solve_mix
from planner.solve.solution import MixSolution

ANY_MIX = 1.0  # a relative gap at which a solver stops at the first mix it finds
MIN_TIME_S = 0.005  # with less there is no point in asking
QUESTIONS_PER_TIME = 4  # each may take a quarter of what is left, so that a hard one does not starve the next


class OutOfTimeError(FleetwrightError):
    """A question that others rest on went unanswered; whoever asks them catches it."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why the stock does not do: what it lacks, and what of the demand it leaves unserved."""

    extra_units: tuple[int, ...]  # per supply, the fewest GPUs' worth beyond the stock
    unserved_rps: dict[tuple[int, int], float]  # (load, bucket) -> rate, when as much as possible is served


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A problem, a solver and the time left.  None is the answer when it has run out."""

    problem: MixProblem
    solver: Solver
    limits: Limits
    deadline_s: float
    clock_s: Callable[[], float]

    def cheapest(self) -> MixSolution:
        """The question itself, with all the time there is."""
        return solve_mix(self.problem, solver=self.solver, limits=self.limits)

    def within(self, share: float) -> Self:
        """The same, with so much of the time limit at most."""
        return replace(self, deadline_s=min(self.deadline_s, self.clock_s() + share * self.limits.time_limit_s))

    def about(self, problem: MixProblem) -> Self:
        """The same time for another problem."""
        return replace(self, problem=problem)

    def ask(self, problem: MixProblem) -> MixSolution | None:
        """The best mix of a problem that differs from this one.  None: nothing is known but that time ran out."""
        return self._ask(problem, relative_gap=self.limits.relative_gap)

    def any_mix(self, problem: MixProblem) -> MixSolution | None:
        """The first mix found that holds all that a problem asks for."""
        return self._ask(problem, relative_gap=ANY_MIX)

    def without_options(self, banned: Collection[int]) -> MixSolution | None:
        """The best mix that runs nothing on some options."""
        return self.ask(avoiding(self.problem, banned))

    def shortage(self) -> Shortage | None:
        """What is missing, for a problem that has no mix."""
        missing, served = ilp.least_missing(self.problem), ilp.most_served(self.problem)
        for model in (missing, served):
            limits = self._remaining()
            if limits is None or not run(model.program, solver=self.solver, limits=limits).status.has_mix:
                return None
        return Shortage(missing.counts_of_extra_units(), _unserved(served))

    def _ask(self, problem: MixProblem, *, relative_gap: float) -> MixSolution | None:
        limits = self._remaining()
        if limits is None:
            return None
        answer = solve_mix(problem, solver=self.solver, limits=replace(limits, relative_gap=relative_gap))
        return None if answer.status is SolveStatus.TIME_LIMIT else answer

    def _remaining(self) -> Limits | None:
        left_s = (self.deadline_s - self.clock_s()) / QUESTIONS_PER_TIME
        return replace(self.limits, time_limit_s=left_s) if left_s > MIN_TIME_S else None


def avoiding(problem: MixProblem, banned: Collection[int]) -> MixProblem:
    """The problem in which nothing may run on some options."""
    change = problem.change
    counted = problem.objective.counts_switching or (change.max_started, change.max_stopped) != (None, None)
    if counted and banned:  # what no route passes is not in a program, and would stop unseen
        none = Limit("none of these", LimitKind.QUOTA, 0.0, replicas=dict.fromkeys(banned, 1.0))
        return replace(problem, limits=(*problem.limits, none))
    routes = (route for route in problem.routes if all(leg.option not in banned for leg in route.legs))
    return replace(problem, routes=tuple(routes))


def _unserved(model: ilp.MixModel) -> dict[tuple[int, int], float]:
    """What is left of each bucket, without the solver's rounding."""
    loads = model.problem.loads
    left = {(w, b): loads[w].rate_rps[b] for w, b in model.problem.buckets()}
    for (r, b), share in model.shares_found().items():
        w = model.problem.routes[r].load
        left[w, b] -= share * loads[w].rate_rps[b]
    return {(w, b): rate_rps for (w, b), rate_rps in left.items() if rate_rps > 1e-6 * loads[w].rate_rps[b]}
