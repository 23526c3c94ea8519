"""What decides in a run: a bare policy with the power brake; the guard fits the same port."""

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from power.guard import Row
from power.levers import UNTOUCHED, Setting
from power.policies.interface import Policy
from power.readings import Budget, Floats, Reading, Seen

Ints = npt.NDArray[np.int64]

BRAKE_HELD_S = 10.0
RELEASED_BELOW = 0.93


class Observed(NamedTuple):
    """What is known at a tick."""

    now_s: float
    reading: Reading | None  # the newest that came; may be old
    counts: Floats
    held: Floats | None  # [token clock, prompt clock, braked, epoch][server]; None: not read back this time
    budget: Budget


class Orders(NamedTuple):
    """What to do now."""

    setting: Setting
    tell: Ints  # servers to be told the setting's clocks
    brake: Ints
    release: Ints


class Calm(NamedTuple):
    """Until when nothing would change."""

    below_w: float
    until_s: float = inf


class Control(Protocol):
    """Decides tick by tick; keeps its own state."""

    @property
    def name(self) -> str:
        """Of the policy."""

    @property
    def command_delay_s(self) -> float:
        """From an order to the clock."""

    @property
    def brakes(self) -> int:
        """How often the brake was engaged."""

    def step(self, observed: Observed) -> Orders:
        """Decide."""

    @property
    def events(self) -> Sequence[object]:
        """What there is to tell."""

    def calm(self) -> Calm:
        """When to be asked again: on any change of the budget, and as this says."""


NONE = np.zeros(0, np.int64)


class PolicyAlone:
    """A policy, and the power brake at 100 % of its budget: held for 10 s at least, released below 93 %.

    A command carries the clocks of the whole row, and a new one waits for the pending one.  Readings up to the release
    say nothing about what follows it.
    """

    def __init__(self, policy: Policy[Any], *, row: Row) -> None:
        self._policy, self._state, self._setting = policy, policy.start(), UNTOUCHED
        self._row = row
        self._braked_s, self._judged_s = inf, -inf
        self._limit_w = inf
        self.brakes = 0
        self.events = ()

    @property
    def name(self) -> str:
        """Of the policy."""
        return self._policy.name

    @property
    def command_delay_s(self) -> float:
        """The policy's."""
        return self._policy.command_delay_s

    def step(self, observed: Observed) -> Orders:
        """Ask the policy; engage or release the brake."""
        now_s, reading, limit_w = observed.now_s, observed.reading, observed.budget.limit_w
        before, self._limit_w = self._setting.clocks, limit_w
        if reading is None:
            return Orders(self._setting, NONE, NONE, NONE)
        seen = Seen(now_s=now_s, reading=reading, counts=observed.counts, budget_w=limit_w)
        self._state, self._setting = self._policy.decide(self._state, seen)
        tell = NONE if self._setting.clocks == before else self._row.all
        brake = release = NONE
        if self._braked_s == inf and reading.row_w > limit_w and reading.at_s > self._judged_s:
            self._braked_s, brake = now_s, self._row.all
            self.brakes += 1
        elif now_s >= self._braked_s + BRAKE_HELD_S and reading.row_w < RELEASED_BELOW * limit_w:
            self._braked_s, self._judged_s, release = inf, now_s, self._row.all
        return Orders(self._setting, tell, brake, release)

    def calm(self) -> Calm:
        """As long as the policy is calm and the brake is off."""
        if self._braked_s < inf:
            return Calm(-inf)
        return Calm(min(self._policy.calm_below_w(self._state, self._limit_w), self._limit_w))
