"""Follow-up questions to a mix problem, asked until the time is up: the same problem again with one thing changed."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from planner import ilp
from planner.mix import MixSolution, solve_mix
from planner.problem import MixProblem
from planner.solvers import Limits, Solver, run

LEAST_TIME_S = 0.005  # with less there is no point in asking
QUESTIONS_PER_TIME = 4  # each may take a quarter of what is left, so that a hard one does not starve the next


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

    def only(self, routes: Collection[int]) -> MixSolution | None:
        """The best mix by some routes only."""
        return self._ask(self.problem, routes=routes)

    def with_one_more(self, supply: int) -> MixSolution | None:
        """The cheapest mix if there were one more unit of a supply that is limited."""
        supplies = list(self.problem.supplies)
        available = supplies[supply].available
        supplies[supply] = replace(supplies[supply], available=None if available is None else available + 1)
        return self._ask(replace(self.problem, supplies=tuple(supplies)), routes=None)

    def shortage(self) -> Shortage | None:
        """What is missing, for a problem that has no mix."""
        missing, served = ilp.least_missing(self.problem), ilp.most_served(self.problem)
        for model in (missing, served):
            limits = self._remaining()
            if limits is None or not run(model.program, solver=self.solver, limits=limits).status.has_mix:
                return None
        return Shortage(missing.counts_of_extra_units(), _unserved(served))

    def _ask(self, problem: MixProblem, *, routes: Collection[int] | None) -> MixSolution | None:
        limits = self._remaining()
        return None if limits is None else solve_mix(problem, solver=self.solver, limits=limits, routes=routes)

    def _remaining(self) -> Limits | None:
        left_s = (self.deadline_s - self.clock_s()) / QUESTIONS_PER_TIME
        return replace(self.limits, time_limit_s=left_s) if left_s > LEAST_TIME_S else None


def _unserved(model: ilp.MixModel) -> dict[tuple[int, int], float]:
    """What is left of each bucket, without the solver's rounding."""
    loads = model.problem.loads
    left = {(w, b): loads[w].rate_rps[b] for w, b in model.problem.buckets()}
    for (r, b), share in model.shares_found().items():
        w = model.problem.routes[r].load
        left[w, b] -= share * loads[w].rate_rps[b]
    return {(w, b): rate_rps for (w, b), rate_rps in left.items() if rate_rps > 1e-6 * loads[w].rate_rps[b]}
