"""The cheapest path through the periods (docs/explanation/planner/horizon.md, section 4): counts first, shares last.

The search solves the relaxation and adds cuts until its counts serve every period.  It then searches, checks and cuts
whole numbers, repairs periods that are a little short by the cheapest additions, and stops at the requested gap or at
the time limit.  The program only omits rows, so every bound holds for the whole.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from fleet.solvers import Limits, Outcome, Solver, SolveStatus
from planner.horizon.plan import Counts, HorizonPlan, cost_of, periods_of
from planner.horizon.problem import HorizonProblem
from planner.horizon.program import MIN_RUN_S, LoadedHorizon, cheapest_path, run_limits
from planner.solve.service_cuts import ServiceCuts

Floats = npt.NDArray[np.float64]
Clock = Callable[[], float]  # monotonic seconds

LOOSE = 1e-3  # replicas: a relaxation may violate a cut by this much, because its counts are not the result
EXACT = 1e-6  # replicas: the tolerance of a result
CUTS_PER_ROUND = 4  # known cuts added per period and round
FLAT_SHARE, NEAR_SHARE, REPAIR_SHARE, SEARCH_SHARE = 0.1, 0.5, 0.5, 0.7  # of the time left at the start of each
ROUTING_SHARE = 0.1  # of the whole time, reserved for the shares


@dataclass
class Path:
    """Counts that serve every period, with their cost."""

    held: Counts  # [period][option]
    units: Counts  # [period][supply]
    committed: dict[int, int]
    cost_usd: float
    values: Floats  # of the program's columns, to start from


@dataclass
class Search:
    problem: HorizonProblem
    cuts: ServiceCuts
    solver: Solver
    limits: Limits
    clock: Clock
    deadline_s: float
    bound_usd: float = 0.0  # no cost is negative
    infeasible: bool = False
    best: Path | None = None
    loaded: LoadedHorizon = field(init=False)

    def __post_init__(self) -> None:
        self.loaded = LoadedHorizon(cheapest_path(self.problem), seed=self.limits.seed)
        self._rates = [self.cuts.rates(rates) for rates in self.problem.rates_rps]

    @property
    def left_s(self) -> float:
        return self.deadline_s - self.clock()

    @property
    def gap(self) -> float:
        if self.best is None:
            return float("inf")
        missing_usd = self.best.cost_usd - self.bound_usd
        return max(0.0, missing_usd) / self.best.cost_usd if self.best.cost_usd > 0 else 0.0

    @property
    def done(self) -> bool:
        return self.infeasible or self.gap <= self.limits.relative_gap + EXACT

    def relax(self) -> None:
        """Cut the relaxation until its counts serve, then once more at the nearest whole numbers."""
        while self.left_s > 0:
            outcome = self.loaded.relax(run_limits(self.left_s, relative_gap=0.0))
            self._learn(outcome)
            if outcome.status is not SolveStatus.OPTIMAL:
                return
            ready = self.loaded.ready
            if not self._cut(ready, tolerance=LOOSE):
                self._cut(np.rint(ready), tolerance=LOOSE)
                return

    def near_relaxed(self) -> None:
        """A first path among the counts next to the relaxation's, after the path with all of them rounded up.

        It does not start from that path: HiGHS 1.15 finds better ones sooner without a start (measured on 96 periods of
        14 options).
        """
        relaxed = self.loaded.running_values
        if self.loaded.rounded_up(relaxed, time_limit_s=self.left_s).status.has_mix:
            self._keep_or_repair()
        outcome = self.loaded.near_relaxed(relaxed, time_limit_s=NEAR_SHARE * self.left_s)
        if outcome.status.has_mix:
            self._keep_or_repair()

    def start_from(self, held: Counts) -> None:
        """Take over counts known to serve, completed by this program's own rows."""
        if self.loaded.complete(held, at_least=False, time_limit_s=self.left_s).status.has_mix:
            self._keep()

    def search(self) -> None:
        while not self.done and self.left_s > 0:
            start = None if self.best is None else self.best.values
            time_limit_s = max(MIN_RUN_S, SEARCH_SHARE * self.left_s)
            limits = replace(self.limits, time_limit_s=time_limit_s, relative_gap=self.limits.relative_gap / 2)
            outcome = self.loaded.optimise(self.solver, limits, start=start)
            self._learn(outcome)
            if not outcome.status.has_mix:
                return
            if self._keep_or_repair() and outcome.status is SolveStatus.OPTIMAL:
                return

    def _keep_or_repair(self) -> bool:
        """Keep counts that serve; add to counts that are a little short until they do.  Whether none were short."""
        if not self._cut(self.loaded.ready, tolerance=EXACT):
            self._keep()
            return True
        while self.left_s > 0:
            limit_s = REPAIR_SHARE * self.left_s
            if not self.loaded.complete(self.loaded.held, at_least=True, time_limit_s=limit_s).status.has_mix:
                return False
            if not self._cut(self.loaded.ready, tolerance=EXACT):
                self._keep()
                return False
        return False

    def _cut(self, ready: Floats, *, tolerance: float) -> int:
        return sum(self._cut_period(t, ready[t], tolerance) for t in range(self.problem.periods))

    def _cut_period(self, period: int, ready: Floats, tolerance: float) -> int:
        rates, added = self._rates[period], 0
        for position, missing in self.cuts.max_violated_known(ready, rates, max_cuts=CUTS_PER_ROUND):
            if missing > tolerance:
                added += self._add(period, position)
        if not added:
            found = self.cuts.find(ready, rates)
            if found is not None and found[1] > tolerance:
                added += self._add(period, found[0])
        return added

    def _add(self, period: int, position: int) -> bool:
        cut = self.cuts.pool[position]
        need = self.cuts.need(cut, self._rates[period])
        return self.loaded.add_service(period=period, position=position, cut=cut, need=need)

    def _learn(self, outcome: Outcome) -> None:
        self.bound_usd = max(self.bound_usd, outcome.bound)
        self.infeasible = self.infeasible or outcome.status is SolveStatus.INFEASIBLE

    def _keep(self) -> None:
        held, committed = self.loaded.held, self.loaded.committed
        units = self.loaded.units
        cost_usd = cost_of(self.problem, units=units, held=held, committed=committed).total_usd
        if self.best is None or cost_usd < self.best.cost_usd:
            self.best = Path(held, units, committed, cost_usd, self.loaded.values)


def solve_horizon(problem: HorizonProblem, *, solver: Solver, limits: Limits, clock: Clock) -> HorizonPlan:
    """Counts, commitments and routing per period, the bound on their cost, and the cost of the peak all day."""
    cuts, begin_s = ServiceCuts(problem.base), clock()
    if (reason := _unservable(problem, cuts)) is not None:
        return HorizonPlan(SolveStatus.INFEASIBLE, float("inf"), None, {}, (), None, reason)
    searching_s = limits.time_limit_s * (1 - ROUTING_SHARE)

    def search_of(part: HorizonProblem, share: float) -> Search:
        deadline_s = clock() + share * (begin_s + searching_s - clock())
        return Search(part, cuts, solver, limits, clock, deadline_s)

    flat = search_of(problem.peak(), FLAT_SHARE)
    flat.relax()
    flat.search()
    whole = search_of(problem, 1.0)
    whole.relax()
    if not whole.infeasible:
        whole.near_relaxed()
        if whole.best is None and flat.best is not None:
            whole.start_from(flat.best.held * problem.periods)
        whole.search()
    return _plan(problem, whole, flat)


def _plan(problem: HorizonProblem, search: Search, flat: Search) -> HorizonPlan:
    flat_usd = None if flat.best is None else flat.best.cost_usd
    if search.best is None:
        status = SolveStatus.INFEASIBLE if search.infeasible else SolveStatus.TIME_LIMIT
        reason = (
            "no counts within the stock and the limits serve every period in time"
            if search.infeasible
            else "the time limit ended the search before a path was found"
        )
        return HorizonPlan(status, search.bound_usd, None, {}, (), flat_usd, reason)
    best = search.best
    return HorizonPlan(
        status=SolveStatus.OPTIMAL if search.done else SolveStatus.FEASIBLE,
        bound_usd=min(search.bound_usd, best.cost_usd),
        cost=cost_of(problem, units=best.units, held=best.held, committed=best.committed),
        committed=best.committed,
        periods=periods_of(problem, units=best.units, held=best.held),
        flat_usd=flat_usd,
    )


def _unservable(problem: HorizonProblem, cuts: ServiceCuts) -> str | None:
    """The first demand that no route serves."""
    served = set(cuts.bucket_routes.cells)
    for t, rates in enumerate(problem.rates_rps):
        for w, load in enumerate(rates):
            for b, rate_rps in enumerate(load):
                if rate_rps > 0 and (w, b) not in served:
                    return f"no route serves bucket {b} of {problem.base.loads[w].name}, which has demand in period {t}"
    return None
