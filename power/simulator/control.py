"""The controller of a run: a bare policy with the power brake; `guard_adapter` has the guard."""

from collections.abc import Sequence
from math import inf
from typing import Any, Protocol

from power.controls import UNTOUCHED
from power.guard import NOT_CALM, Calm, GuardMode, Orders, Row, Telemetry
from power.guard.telemetry import NO_SERVERS
from power.policies.interface import Policy
from power.telemetry import Observation

BRAKE_HELD_S = 10.0
RELEASED_BELOW = 0.93


class Control(Protocol):
    """The controller of a row, called tick by tick; stateful."""

    @property
    def name(self) -> str:
        """The name of the policy."""

    @property
    def command_delay_s(self) -> float:
        """The delay from a command to the clock."""

    @property
    def brakes(self) -> int:
        """The number of brakes so far."""

    def step(self, telemetry: Telemetry) -> Orders:
        """Decide."""

    @property
    def events(self) -> Sequence[object]:
        """Return the events so far."""

    @property
    def reads_every_step(self) -> bool:
        """Return whether servers are read back at every step now."""

    def calm(self) -> Calm:
        """Return when the next step is needed: at any change of the budget, and as in this value."""


class PolicyAlone:
    """A policy with the power brake at 100 % of its budget: at least 10 s once it takes effect, released below 93 %.

    A command carries the clocks of the whole row, and a new one waits for the pending one.  Readings up to the release
    do not engage the brake again.
    """

    def __init__(self, policy: Policy[Any], *, row: Row, brake_delay_s: float) -> None:
        self._policy, self._state, self._setting = policy, policy.start(), UNTOUCHED
        self._row = row
        self._held_s = brake_delay_s + BRAKE_HELD_S
        self._braked_s, self._judged_s = inf, -inf
        self._limit_w = inf
        self.brakes = 0
        self.events = ()

    @property
    def name(self) -> str:
        return self._policy.name

    @property
    def command_delay_s(self) -> float:
        return self._policy.command_delay_s

    def step(self, telemetry: Telemetry) -> Orders:
        """Run the policy; engage or release the brake."""
        now_s, reading, counts, _, budget, _ = telemetry
        before = self._setting.clocks
        limit_w = self._limit_w = inf if budget is None else budget.limit_w
        if reading is None:
            return Orders(GuardMode.NORMAL, self._setting)
        observed = Observation(now_s=now_s, reading=reading, counts=counts, budget_w=limit_w)
        self._state, self._setting = self._policy.decide(self._state, observed)
        command = NO_SERVERS if self._setting.clocks == before else self._row.all
        brake = release = NO_SERVERS
        if self._braked_s == inf and reading.row_w > limit_w and reading.at_s > self._judged_s:
            self._braked_s, brake = now_s, self._row.all
            self.brakes += 1
        elif now_s >= self._braked_s + self._held_s and reading.row_w < RELEASED_BELOW * limit_w:
            self._braked_s, self._judged_s, release = inf, now_s, self._row.all
        return Orders(
            GuardMode.NORMAL if self._braked_s == inf else GuardMode.BRAKED, self._setting, command, brake, release
        )

    @property
    def reads_every_step(self) -> bool:
        """Return False: the bare policy has no read-back."""
        return False

    def calm(self) -> Calm:
        """Return the policy's calm range while the brake is off."""
        if self._braked_s < inf:
            return NOT_CALM
        return Calm(min(self._policy.calm_below_w(self._state, self._limit_w), self._limit_w), inf)
