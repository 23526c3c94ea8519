"""Solving of the cap program: the relaxation with its bound and prices, a choice nearby, then the integer program on
the options that remain; or the conflicts with their excess.

The choice nearby needs no solver: it starts where every feed holds, and raises clocks while the limits allow.  A plan
falls back on this choice at the time limit.  With the bound of the relaxation it also excludes options.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt

import numpy as np

from fleet.solvers import Deadline, Limits, Solver, SolveStatus, run
from power.arrays import Floats
from power.caps.program import CapModel, CapProblem, Choice, Spreads, add_peak, add_plane, mixed, scale_w

MAX_PASSES = 20
HOLDS = 1e-6  # relative; the solver's own tolerance, and far below a meter's
MAX_ROUNDS = 60
RELAXATION_ROUNDS = 12
RELAXED = 1e-5  # relative; mixtures are no choices, so planes near enough do
NEGLIGIBLE = 1e-9  # servers; less is the solver's rounding


@dataclass(frozen=True)
class CapResult:
    """The result of one period.  Without a choice the caller keeps the present clocks."""

    status: SolveStatus
    choice: Choice | None
    loss: float | None
    bound: float  # proven: no choice loses less
    prices: dict[int, float]  # per feed: loss saved per watt more, by the relaxation
    excess_w: dict[int, float]  # if infeasible: the least total excess in watts, by feed


def solve(problem: CapProblem, *, solver: Solver, limits: Limits) -> CapResult:
    first = tuple(0 for _ in problem.options)
    if not broken(problem, first):
        return CapResult(SolveStatus.OPTIMAL, first, problem.loss(first), problem.loss(first), {}, {})
    search = _Search(problem, solver, Deadline.of(limits))
    if search.relax() is SolveStatus.INFEASIBLE:
        return search.nothing()
    if not search.close_enough:
        search.whole()
    return search.result()


class _Search:
    def __init__(self, problem: CapProblem, solver: Solver, deadline: Deadline) -> None:
        self.problem = problem
        self.solver = solver
        self.deadline = deadline
        self.kept = tuple(tuple(range(len(menu))) for menu in problem.options)  # options not excluded yet
        self.touched: list[tuple[int, Spreads]] = []
        self.bound = 0.0  # no loss is negative
        least = problem.least()
        self.best: Choice | None = None if broken(problem, least) else descend(problem, least)
        self.status = SolveStatus.TIME_LIMIT
        self.prices: dict[int, float] = {}

    @property
    def close_enough(self) -> bool:
        if self.best is None:
            return False
        loss = self.problem.loss(self.best)
        return loss - self.bound <= max(NEGLIGIBLE, self.deadline.limits.relative_gap * loss)

    def relax(self) -> SolveStatus:
        """Solve the relaxation: it gives a bound, prices and a choice near the mixture."""
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
        """Solve the integer program on the remaining options; add planes until the true limits hold."""
        menus = tuple(tuple(menu[o] for o in kept) for menu, kept in zip(self.problem.options, self.kept, strict=True))
        model = CapModel(replace(self.problem, options=menus))
        for position, at in self.touched:
            add_plane(model, position, at)
        for _ in range(MAX_ROUNDS):
            outcome = run(model.program, solver=self.solver, limits=self.deadline.rest())
            if outcome.status is SolveStatus.INFEASIBLE:
                # No remaining option gives a better choice, so the incumbent is optimal.
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
        """Accept a choice if it is feasible and better; else return the feeds that it violates."""
        choice = tuple(kept[o] for kept, o in zip(self.kept, model.chosen(), strict=True))
        wrong = broken(self.problem, choice)
        if not wrong:
            if self.best is None or self.problem.loss(choice) < self.problem.loss(self.best):
                self.best = choice
            self.status = SolveStatus.OPTIMAL if status is SolveStatus.OPTIMAL else self.status
        return wrong

    def result(self) -> CapResult:
        if self.best is None:
            unknown = CapResult(SolveStatus.TIME_LIMIT, None, None, self.bound, {}, {})
            return self.nothing() if self.status is SolveStatus.INFEASIBLE else unknown
        loss = self.problem.loss(self.best)
        proven = self.status is SolveStatus.OPTIMAL or self.close_enough
        status = SolveStatus.OPTIMAL if proven else SolveStatus.FEASIBLE
        prices = {position: price for position, price in self.prices.items() if price > 0}
        return CapResult(status, self.best, loss, min(loss, self.bound), prices, {})

    def nothing(self) -> CapResult:
        """Return the choice with the least total excess, and its conflicts."""
        return CapResult(
            SolveStatus.INFEASIBLE, None, None, inf, {}, _missing_w(self.problem, self.solver, self.deadline)
        )

    def _leave_out(self, relaxed: CapModel) -> None:
        """Exclude options whose reduced cost alone exceeds the gap to the incumbent."""
        gap_left = inf if self.best is None else self.problem.loss(self.best) - self.bound
        self.kept = tuple(
            tuple(o for o, cost in enumerate(costs.tolist()) if cost <= gap_left + NEGLIGIBLE)
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
    """Return the power of a feed beyond its limit and beyond the excess in the program."""
    feed = model.problem.feeds[position]
    admitted_w = (model.excess[position].varValue or 0.0) * scale_w(feed.limit_w)
    return model.problem.peak_w(feed, choice) - feed.limit_w * (1 + HOLDS) - admitted_w


class Tally:
    """The power of every feed at a choice, updated as classes change."""

    def __init__(self, problem: CapProblem, choice: Choice) -> None:
        self.problem = problem
        self.choice = list(choice)
        self.above: list[list[int]] = [[] for _ in problem.options]
        self.sums = np.zeros((len(problem.feeds), 3))  # mean, own squared, common
        self._limits = [feed.limit_w * (1 + HOLDS) for feed in problem.feeds]
        self._parts = [[_parts(option.draw) for option in menu] for menu in problem.options]
        for position, feed in enumerate(problem.feeds):
            for g in feed.members:
                self.above[g].append(position)
                self.sums[position] += self._parts[g][choice[g]]

    def fits(self, g: int, option: int) -> bool:
        """Return whether all feeds above a class stay within their limits with another option of the class."""
        change = self._parts[g][option] - self._parts[g][self.choice[g]]
        for position in self.above[g]:
            mean, own, common = (self.sums[position] + change).tolist()
            if mean + self.problem.sigmas * sqrt(max(0.0, own) + common * common) > self._limits[position]:
                return False
        return True

    def take(self, g: int, option: int) -> None:
        change = self._parts[g][option] - self._parts[g][self.choice[g]]
        for position in self.above[g]:
            self.sums[position] += change
        self.choice[g] = option


def broken(problem: CapProblem, choice: Choice) -> list[int]:
    return [
        position
        for position, feed in enumerate(problem.feeds)
        if problem.peak_w(feed, choice) > feed.limit_w * (1 + HOLDS)
    ]


def descend(problem: CapProblem, start: Choice) -> Choice:
    """Improve a feasible choice, class by class with the largest saving first, until no single class improves it."""
    tally = Tally(problem, start)
    losses = [[option.loss for option in menu] for menu in problem.options]
    for _ in range(MAX_PASSES):
        order = sorted(range(len(losses)), key=lambda g: -losses[g][tally.choice[g]])
        if sum(_better(tally, g, losses[g]) for g in order) == 0:
            break
    return tuple(tally.choice)


def rounded(problem: CapProblem, shares: Sequence[Floats]) -> Choice | None:
    """Return a choice near a mixture: each class takes the mixed option with the lowest power."""
    choice = []
    for menu, mine in zip(problem.options, shares, strict=True):
        mixed = [o for o, share in enumerate(mine) if share > HOLDS] or [int(mine.argmax())]
        choice.append(min(mixed, key=lambda o, menu=menu: sum(menu[o].draw)))  # type: ignore[misc]
    found = tuple(choice)
    return None if broken(problem, found) else descend(problem, found)


def _better(tally: Tally, g: int, losses: Sequence[float]) -> bool:
    """Return the first option of each class that fits; options are sorted by loss."""
    for option in range(tally.choice[g]):
        if losses[option] < losses[tally.choice[g]] and tally.fits(g, option):
            tally.take(g, option)
            return True
    return False


def _parts(draw: Sequence[float]) -> Floats:
    return np.array([draw[0], draw[1] ** 2, draw[2]])
