"""The cap program of one period: one option per class, every feed within its limit at the risk, at the least loss.

The peak of a feed is `sum of means + sigmas * sqrt(sum of own^2 + (sum of common)^2)`, convex in the choices.
Tangent planes bound it from below (outer approximation, Duran and Grossmann 1986): solve, add a plane wherever the
choice violates the true limit, and solve again.  Every plane is valid for all choices, so each bound is proven.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np
import pulp

from power.arrays import Floats
from power.caps.options import Option
from power.caps.power_model import peak_w

Choice = tuple[int, ...]  # of each class, which option


@dataclass(frozen=True, slots=True)
class FeedLimit:
    name: str = field(compare=False)
    limit_w: float
    members: tuple[int, ...]


@dataclass(frozen=True)
class CapProblem:
    options: tuple[tuple[Option, ...], ...]  # of each class, the least loss first
    feeds: tuple[FeedLimit, ...]
    sigmas: float

    def loss(self, choice: Choice) -> float:
        """Return the number of servers with their slack used up."""
        return sum(self.options[g][o].loss for g, o in enumerate(choice))

    def peak_w(self, feed: FeedLimit, choice: Choice) -> float:
        return peak_w((self.options[g][choice[g]].draw for g in feed.members), sigmas=self.sigmas)

    def least(self) -> Choice:
        """Return, for each class alone, the option with the lowest power at the risk."""
        alone = ([peak_w([option.draw], sigmas=self.sigmas) for option in mine] for mine in self.options)
        return tuple(watts.index(min(watts)) for watts in alone)


@dataclass(frozen=True)
class Spreads:
    """The point of tangency of a plane: own spread by class, and the common spread."""

    own_w: dict[int, float]
    common_w: float

    @property
    def root_w(self) -> float:
        return sqrt(sum(u * u for u in self.own_w.values()) + self.common_w * self.common_w)


@dataclass
class CapModel:
    """A PuLP program and the meaning of its variables."""

    problem: CapProblem
    elastic: bool = False  # a feed may exceed its limit at a price, to find the conflicts
    program: Any = field(default_factory=lambda: pulp.LpProblem("caps", pulp.LpMinimize))
    choose: list[list[Any]] = field(default_factory=list)  # [class][option]: 1 where chosen
    excess: dict[int, Any] = field(default_factory=dict)  # per feed, in shares of its limit
    planes: list[tuple[int, str]] = field(default_factory=list)  # (feed, row)

    def __post_init__(self) -> None:
        self._variables()
        add_one(self)
        for position in range(len(self.problem.feeds)):
            add_peak(self, position, tuple(0 for _ in self.problem.options))
            add_peak(self, position, self.problem.least())
        self.program.setObjective(self._objective())

    def chosen(self) -> Choice:
        return tuple(int(mine.argmax()) for mine in self.shares())

    def shares(self) -> list[Floats]:
        return [np.array([y.varValue or 0.0 for y in mine]) for mine in self.choose]

    def relax(self) -> None:
        """Let classes mix their options."""
        for mine in self.choose:
            for y in mine:
                y.cat = pulp.LpContinuous

    def reduced(self) -> list[Floats]:
        """Return the reduced cost of each option after the relaxation is solved."""
        return [np.array([max(0.0, y.dj or 0.0) for y in mine]) for mine in self.choose]

    def prices(self) -> dict[int, float]:
        """Return, by feed, the loss that one more watt would save, after the relaxation is solved."""
        rows = {row.name: row for row in self.program.constraints()}
        found: dict[int, float] = {}
        for position, name in self.planes:
            limit_w = self.problem.feeds[position].limit_w
            found[position] = found.get(position, 0.0) + max(0.0, -(rows[name].pi or 0.0)) / scale_w(limit_w)
        return found

    def _variables(self) -> None:
        for g, mine in enumerate(self.problem.options):
            self.choose.append(
                [self.program.add_variable(f"choose_{g}_{o}", 0, 1, pulp.LpInteger) for o in range(len(mine))]
            )
        if self.elastic:
            for position in range(len(self.problem.feeds)):
                self.excess[position] = self.program.add_variable(f"excess_{position}", 0, None, pulp.LpContinuous)

    def _objective(self) -> Any:
        if self.elastic:
            feeds = self.problem.feeds
            return _linear([(e, scale_w(feeds[position].limit_w) / 1000) for position, e in self.excess.items()])
        return _linear([(y, option.loss) for mine, opts in self._pairs() for y, option in zip(mine, opts, strict=True)])

    def _pairs(self) -> list[tuple[list[Any], tuple[Option, ...]]]:
        return list(zip(self.choose, self.problem.options, strict=True))


def add_one(model: CapModel) -> None:
    """one[g]: each class has one setting."""
    for g, mine in enumerate(model.choose):
        row = pulp.LpConstraint(_linear([(y, 1.0) for y in mine]), pulp.LpConstraintEQ, f"one_{g}", 1)
        model.program.addConstraint(row)


def add_peak(model: CapModel, position: int, choice: Choice) -> None:
    """Add peak[d,k]: a tangent plane of a feed's peak at a choice, within the limit."""
    feed = model.problem.feeds[position]
    draws = {g: model.problem.options[g][choice[g]].draw for g in feed.members}
    own = {g: draw.own_w for g, draw in draws.items()}
    add_plane(model, position, Spreads(own, sum(draw.common_w for draw in draws.values())))


def add_plane(model: CapModel, position: int, at: Spreads) -> None:
    """Add a plane at any spreads u_g and C, S being the root of the sum of their squares: option o of class g weighs
    mean + sigmas * (u_g * own + C * common) / S.
    """
    feed, sigmas = model.problem.feeds[position], model.problem.sigmas
    root, scale = at.root_w, scale_w(feed.limit_w)
    terms: list[tuple[Any, float]] = []
    for g in feed.members:
        for y, option in zip(model.choose[g], model.problem.options[g], strict=True):
            mean_w, own_w, common_w = option.draw
            weight = mean_w + (sigmas * (at.own_w[g] * own_w + at.common_w * common_w) / root if root > 0 else 0.0)
            terms.append((y, weight / scale))
    if position in model.excess:
        terms.append((model.excess[position], -1.0))
    name = f"peak_{position}_{len(model.planes)}"
    model.program.addConstraint(pulp.LpConstraint(_linear(terms), pulp.LpConstraintLE, name, feed.limit_w / scale))
    model.planes.append((position, name))


def mixed(problem: CapProblem, position: int, shares: Sequence[Floats]) -> tuple[float, Spreads]:
    """Return the excess of a feed's peak over its limit, as a share, at a mixture of options, and the spreads there."""
    feed = problem.feeds[position]
    mean, common, own = 0.0, 0.0, dict[int, float]()
    for g in feed.members:
        m, own[g], c = (shares[g] @ np.array([option.draw for option in problem.options[g]])).tolist()
        mean, common = mean + m, common + c
    at = Spreads(own, common)
    return (mean + problem.sigmas * at.root_w - feed.limit_w) / scale_w(feed.limit_w), at


def scale_w(limit_w: float) -> float:
    """Return the divisor of a feed's rows, so that tolerances are shares of its limit."""
    return max(1.0, limit_w)


def _linear(terms: Sequence[tuple[Any, float]]) -> Any:
    return pulp.LpAffineExpression(list(terms))
