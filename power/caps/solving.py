"""Solving the cap program: the relaxation and its bound, a choice near it, then the whole numbers that are still in
question; prices, or what conflicts and by how much."""

from dataclasses import dataclass, replace
from math import inf

from fleet.solvers import Deadline, Limits, Solver, SolveStatus, run
from power.caps.greedy import HOLDS, broken, descend, rounded
from power.caps.program import CapModel, CapProblem, Choice, Spreads, add_peak, add_plane, mixed, scale_w

MAX_ROUNDS = 60
RELAXATION_ROUNDS = 12
RELAXED = 1e-5  # relative; mixtures are no choices, so planes near enough do
NEGLIGIBLE = 1e-9  # servers; less is the solver's rounding


@dataclass(frozen=True)
class CapAnswer:
    """How one period ended.  Without a choice the caller keeps what holds now."""

    status: SolveStatus
    choice: Choice | None
    loss: float | None
    bound: float  # proven: no choice loses less
    prices: dict[int, float]  # per feed: loss saved per watt more, by the relaxation
    excess_w: dict[int, float]  # where nothing holds: the least watts in all that are missing, and where


def solve(problem: CapProblem, *, solver: Solver, limits: Limits) -> CapAnswer:
    """The least loss."""
    first = tuple(0 for _ in problem.options)
    if not broken(problem, first):
        return CapAnswer(SolveStatus.OPTIMAL, first, problem.loss(first), problem.loss(first), {}, {})
    search = _Search(problem, solver, Deadline.of(limits))
    if search.relax() is SolveStatus.INFEASIBLE:
        return search.nothing()
    if not search.close_enough:
        search.whole()
    return search.answer()


class _Search:
    """One problem on its way to an answer."""

    def __init__(self, problem: CapProblem, solver: Solver, deadline: Deadline) -> None:
        self.problem = problem
        self.solver = solver
        self.deadline = deadline
        self.kept = tuple(tuple(range(len(menu))) for menu in problem.options)  # options still in question
        self.touched: list[tuple[int, Spreads]] = []
        self.bound = 0.0  # no loss is negative
        least = problem.least()
        self.best: Choice | None = None if broken(problem, least) else descend(problem, least)
        self.status = SolveStatus.TIME_LIMIT
        self.prices: dict[int, float] = {}

    @property
    def close_enough(self) -> bool:
        """Whether the gap asked for is reached."""
        if self.best is None:
            return False
        loss = self.problem.loss(self.best)
        return loss - self.bound <= max(NEGLIGIBLE, self.deadline.limits.relative_gap * loss)

    def relax(self) -> SolveStatus:
        """Mixtures of options: a bound, prices, and a choice near by."""
        relaxed = CapModel(self.problem)
        relaxed.relax()
        shares = relaxed.shares()
        for _ in range(RELAXATION_ROUNDS):
            outcome = run(relaxed.program, solver=Solver.HIGHS, limits=self.deadline.rest())
            if not outcome.status.has_mix:
                return outcome.status
            self.bound = max(self.bound, outcome.bound)
            shares, self.prices = relaxed.shares(), relaxed.prices()
            at = [mixed(self.problem, position, shares) for position in range(len(self.problem.feeds))]
            wrong = [position for position, (past, _) in enumerate(at) if past > RELAXED]
            if not wrong or self.deadline.has_struck:
                break
            for position in wrong:
                add_plane(relaxed, position, at[position][1])
                self.touched.append((position, at[position][1]))
        near = rounded(self.problem, shares)
        if near is not None and (self.best is None or self.problem.loss(near) < self.problem.loss(self.best)):
            self.best = near
        self._leave_out(relaxed)
        return SolveStatus.OPTIMAL

    def whole(self) -> None:
        """One option per class, of those still in question: planes until the true limits hold."""
        menus = tuple(tuple(menu[o] for o in kept) for menu, kept in zip(self.problem.options, self.kept, strict=True))
        model = CapModel(replace(self.problem, options=menus))
        for position, at in self.touched:
            add_plane(model, position, at)
        for _ in range(MAX_ROUNDS):
            outcome = run(model.program, solver=self.solver, limits=self.deadline.rest())
            if outcome.status is SolveStatus.INFEASIBLE:
                # Of the options that a better choice might contain, none makes one: the best known is the best.
                self.status = SolveStatus.OPTIMAL if self.best is not None else SolveStatus.INFEASIBLE
                self.bound = inf if self.best is None else self.problem.loss(self.best)
                return
            self.bound = max(self.bound, outcome.bound)
            if not outcome.status.has_mix:
                return
            wrong = self._consider(model, outcome.status)
            if not wrong or self.deadline.has_struck or self.close_enough:
                return
            for position in wrong:
                add_peak(model, position, model.chosen())

    def _consider(self, model: CapModel, status: SolveStatus) -> list[int]:
        """Take what a run found where it holds and is better; else the feeds that it breaks."""
        choice = tuple(kept[o] for kept, o in zip(self.kept, model.chosen(), strict=True))
        wrong = broken(self.problem, choice)
        if not wrong:
            if self.best is None or self.problem.loss(choice) < self.problem.loss(self.best):
                self.best = choice
            self.status = SolveStatus.OPTIMAL if status is SolveStatus.OPTIMAL else self.status
        return wrong

    def answer(self) -> CapAnswer:
        """What was found."""
        if self.best is None:
            return self.nothing() if self.status is SolveStatus.INFEASIBLE else self._unknown()
        loss = self.problem.loss(self.best)
        proven = self.status is SolveStatus.OPTIMAL or self.close_enough
        status = SolveStatus.OPTIMAL if proven else SolveStatus.FEASIBLE
        prices = {position: price for position, price in self.prices.items() if price > 0}
        return CapAnswer(status, self.best, loss, min(loss, self.bound), prices, {})

    def nothing(self) -> CapAnswer:
        """No choice holds: the one that goes past its limits by the fewest watts, and where it does."""
        return CapAnswer(
            SolveStatus.INFEASIBLE, None, None, inf, {}, _missing_w(self.problem, self.solver, self.deadline)
        )

    def _unknown(self) -> CapAnswer:
        return CapAnswer(SolveStatus.TIME_LIMIT, None, None, self.bound, {}, {})

    def _leave_out(self, relaxed: CapModel) -> None:
        """Options whose reduced cost alone would make a choice worse than the best one known."""
        room = inf if self.best is None else self.problem.loss(self.best) - self.bound
        self.kept = tuple(
            tuple(o for o, cost in enumerate(costs.tolist()) if cost <= room + NEGLIGIBLE)
            for costs in relaxed.reduced()
        )


def _missing_w(problem: CapProblem, solver: Solver, deadline: Deadline) -> dict[int, float]:
    model = CapModel(problem, elastic=True)
    choice = problem.least()
    limits = replace(deadline.limits, relative_gap=0.0)
    deadline = replace(deadline, limits=limits)
    for _ in range(MAX_ROUNDS):
        if not run(model.program, solver=solver, limits=deadline.rest()).status.has_mix:
            break
        choice = model.chosen()
        off = [position for position in range(len(problem.feeds)) if _hidden_w(model, position, choice) > 0]
        if not off or deadline.has_struck:
            break
        for position in off:
            add_peak(model, position, choice)
    over = {p: problem.peak_w(feed, choice) - feed.limit_w for p, feed in enumerate(problem.feeds)}
    return {p: watts for p, watts in over.items() if watts > HOLDS * problem.feeds[p].limit_w}


def _hidden_w(model: CapModel, position: int, choice: Choice) -> float:
    """What a feed draws past its limit and past what the program admits to."""
    feed = model.problem.feeds[position]
    admitted_w = (model.excess[position].varValue or 0.0) * scale_w(feed.limit_w)
    return model.problem.peak_w(feed, choice) - feed.limit_w * (1 + HOLDS) - admitted_w
