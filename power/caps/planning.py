"""The entry point of cap planning.  Formulation: docs/explanation/power/caps.md.

Each period is solved by independent components: feeds that no choice can exceed are dropped, and the rest splits into
the trees under the highest remaining feeds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import fsum, isfinite

from fleet.solvers import Deadline, Limits, Solver, SolveStatus
from power.caps.options import Option, Terms
from power.caps.power_model import Draw, peak_w
from power.caps.program import CapProblem, FeedLimit
from power.caps.reporting import period_caps
from power.caps.result import CapPlan, FeedConflict, PeriodCaps
from power.caps.scenarios import Scenarios
from power.caps.solving import CapResult, solve
from power.tree.document import PowerTree

DEFAULT_LIMITS = Limits(time_limit_s=120.0, relative_gap=1e-2)


def plan_caps(
    tree: PowerTree, *, terms: Terms | None = None, solver: Solver = Solver.HIGHS, limits: Limits = DEFAULT_LIMITS
) -> CapPlan:
    """Plan clocks per class and period, and budgets and prices per feed and period."""
    started_s = limits.clock_s()
    run = _Run(Scenarios(tree, terms or Terms()), solver, Deadline.of(limits))
    periods = tuple(run.period(period) for period in range(tree.periods))
    status = _worst([period.status for period in periods])
    loss, bound = run.totals(periods) if status.has_mix else (None, None)
    return CapPlan(
        tree=tree.name,
        risk=run.scenarios.terms.risk,
        status=status,
        loss=loss,
        bound=bound,
        gap=None if loss is None or bound is None else (loss - bound) / loss if loss > 0 else 0.0,
        binding=_dearest(periods),
        period_h=tree.period_h,
        periods=periods,
        conflicts=tuple(run.conflicts),
        solve_s=limits.clock_s() - started_s,
    )


@dataclass(frozen=True)
class Component:
    problem: CapProblem
    classes: tuple[int, ...]  # index of its classes in the whole problem
    feeds: tuple[int, ...]


@dataclass
class _Run:
    scenarios: Scenarios
    solver: Solver
    deadline: Deadline
    conflicts: list[FeedConflict] = field(default_factory=list)
    lost_bounds: dict[int, float] = field(default_factory=dict)
    known: dict[CapProblem, CapResult] = field(default_factory=dict)

    def period(self, period: int) -> PeriodCaps:
        problem = self.scenarios.both_sides(period)
        result = self._solved(problem, period)
        self.conflicts += _conflicts(problem, result, period, on_one_side=False)
        lost = self._one_side(period, problem, result)
        return period_caps(self.scenarios, period, (problem, result), lost)

    def _one_side(self, period: int, before: CapProblem, result: CapResult) -> tuple[CapProblem, CapResult] | None:
        problem = None if result.choice is None else self.scenarios.one_side(period, before, result.choice)
        if problem is None:
            return None
        lost = self._solved(problem, period)
        self.lost_bounds[period] = lost.bound
        self.conflicts += _conflicts(problem, lost, period, on_one_side=True)
        return problem, lost

    def totals(self, periods: tuple[PeriodCaps, ...]) -> tuple[float, float]:
        share = self.scenarios.terms.lost_share
        losses = ((1 - share) * (p.loss or 0.0) + share * (p.lost_loss or 0.0) for p in periods)
        bounds = ((1 - share) * (p.bound or 0.0) + share * self.lost_bounds.get(p.period, 0.0) for p in periods)
        return fsum(losses) / len(periods), fsum(bounds) / len(periods)

    def _solved(self, whole: CapProblem, period: int) -> CapResult:
        """Solve every component and merge the results."""
        choice, free = [0] * len(whole.options), set(range(len(whole.options)))
        statuses, bound, prices, excess = [SolveStatus.OPTIMAL], 0.0, dict[int, float](), dict[int, float]()
        for part in parts(whole):
            result = self._part(part, period)
            statuses.append(result.status)
            bound += result.bound if isfinite(result.bound) else 0.0
            prices |= {part.feeds[feed]: price for feed, price in result.prices.items()}
            excess |= {part.feeds[feed]: watts for feed, watts in result.excess_w.items()}
            free -= set(part.classes)
            for g, option in zip(part.classes, result.choice or (), strict=False):
                choice[g] = option
        status, found = _worst(statuses), tuple(choice) if _worst(statuses).has_mix else None
        bound += fsum(whole.options[g][0].loss for g in free)
        return CapResult(status, found, None if found is None else whole.loss(found), bound, prices, excess)

    def _part(self, part: Component, period: int) -> CapResult:
        """Solve a part; equal periods are solved once."""
        if part.problem not in self.known:
            limits = self.deadline.rest(2 / (2 + self.scenarios.tree.periods - period))
            self.known[part.problem] = solve(part.problem, solver=self.solver, limits=limits)
        return self.known[part.problem]


def _conflicts(problem: CapProblem, result: CapResult, period: int, *, on_one_side: bool) -> Iterator[FeedConflict]:
    for position, missing_w in result.excess_w.items():
        feed = problem.feeds[position]
        state = "with one side lost, " if on_one_side else ""
        reason = (
            f"period {period}: {state}{feed.name} may draw {feed.limit_w:,.0f} W, but at the lowest clocks allowed its "
            f"servers would draw {feed.limit_w + missing_w:,.0f} W at the risk: {missing_w:,.0f} W are missing"
        )
        yield FeedConflict(period=period, feed=feed.name, on_one_side=on_one_side, missing_w=missing_w, reason=reason)


def _worst(statuses: list[SolveStatus]) -> SolveStatus:
    order = [SolveStatus.INFEASIBLE, SolveStatus.TIME_LIMIT, SolveStatus.FEASIBLE, SolveStatus.OPTIMAL]
    return min(statuses, key=order.index)


def _dearest(periods: tuple[PeriodCaps, ...]) -> str | None:
    worth: dict[str, float] = {}
    for period in periods:
        for feed in period.feeds:
            worth[feed.name] = worth.get(feed.name, 0.0) + feed.loss_per_kw * (feed.limit_w or 0.0)
    best = max(worth, key=lambda name: worth[name], default=None)
    return best if best is not None and worth[best] > 0 else None


def parts(whole: CapProblem) -> Iterator[Component]:
    """Split a problem; a class in no component takes its first option."""
    by_menu: dict[int, Draw] = {}
    for menu in whole.options:
        if id(menu) not in by_menu:  # classes of a group share one
            by_menu[id(menu)] = _highest(menu)
    highest = [by_menu[id(menu)] for menu in whole.options]
    doubtful = [position for position, feed in enumerate(whole.feeds) if _may_break(whole, feed, highest)]
    under = {position: frozenset(whole.feeds[position].members) for position in doubtful}
    left = sorted(doubtful, key=lambda position: -len(under[position]))
    while left:
        top = left[0]
        inside = [position for position in left if under[position] <= under[top]]
        left = [position for position in left if position not in inside]
        yield _part(whole, sorted(inside))


def _highest(menu: Sequence[Option]) -> Draw:
    return Draw(*map(max, zip(*(option.draw for option in menu), strict=True)))


def _may_break(whole: CapProblem, feed: FeedLimit, highest: Sequence[Draw]) -> bool:
    """Return whether the classes, with every part of their draw at its highest, would exceed the feed's limit."""
    return peak_w((highest[g] for g in feed.members), sigmas=whole.sigmas) > feed.limit_w


def _part(whole: CapProblem, feeds: list[int]) -> Component:
    classes = sorted({g for position in feeds for g in whole.feeds[position].members})
    new = {g: at for at, g in enumerate(classes)}
    limits = []
    for position in feeds:
        feed = whole.feeds[position]
        limits.append(FeedLimit(feed.name, feed.limit_w, tuple(new[g] for g in feed.members)))
    problem = CapProblem(tuple(whole.options[g] for g in classes), tuple(limits), whole.sigmas)
    return Component(problem, tuple(classes), tuple(feeds))
