"""A good choice without a solver: start where every feed holds, then raise clocks while the limits allow.

A plan falls back on this choice at the time limit.  With the bound of the relaxation it also excludes options.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np
import numpy.typing as npt

from power.caps.program import CapProblem, Choice

MAX_PASSES = 20
HOLDS = 1e-6  # relative; the solver's own tolerance, and far below a meter's


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
    """Return the feeds that exceed their limits."""
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


def rounded(problem: CapProblem, shares: Sequence[npt.NDArray[np.float64]]) -> Choice | None:
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


def _parts(draw: Sequence[float]) -> npt.NDArray[np.float64]:
    return np.array([draw[0], draw[1] ** 2, draw[2]])
