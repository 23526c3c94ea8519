"""The controllers of a run, stepped tick by tick: a bare policy with the power brake, or the guard around a policy.

Both have the name and the clock delay of their policy, the brakes and events so far, and whether they read servers back
at every step now.  `calm` gives when the next step is needed: at any change of the budget, and as in its value.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from power.controls import UNTOUCHED
from power.guard import NOT_CALM, Calm, Commands, Duty, Guard, GuardMode, GuardSettings, Row, Telemetry
from power.guard.telemetry import NO_SERVERS
from power.policies.interface import Policy
from power.server_model import Draw, ServerModel
from power.simulator.spec import RowSpec
from power.simulator.state import NO_INDEX, WINDOW_S, Records
from power.telemetry import RowObservation
from power.workload import TrainingJob

BRAKE_HELD_S = 10.0
RELEASED_BELOW = 0.93


class PolicyAlone:
    """A policy with the power brake at 100 % of its budget: at least 10 s once it takes effect, released below 93 %.

    A command carries the clocks of the whole row, and a new one waits for the pending one.  Readings up to the release
    do not engage the brake again.
    """

    def __init__(self, policy: Policy[Any], *, row: Row, brake_delay_s: float) -> None:
        self.name, self.command_delay_s = policy.name, policy.command_delay_s
        self._policy, self._state, self._setting = policy, policy.start(), UNTOUCHED
        self._row = row
        self._held_s = brake_delay_s + BRAKE_HELD_S
        self._braked_s, self._evaluated_s = inf, -inf
        self._limit_w = inf
        self.brakes = 0
        self.events: tuple[object, ...] = ()
        self.reads_every_step = False  # there is no read-back

    def step(self, telemetry: Telemetry) -> Commands:
        """Run the policy; engage or release the brake."""
        now_s, reading, counts, _, budget, _ = telemetry
        before = self._setting.clocks
        limit_w = self._limit_w = inf if budget is None else budget.limit_w
        if reading is None:
            return Commands(GuardMode.NORMAL, self._setting)
        observed = RowObservation(now_s=now_s, reading=reading, counts=counts, budget_w=limit_w)
        self._state, self._setting = self._policy.decide(self._state, observed)
        command = NO_SERVERS if self._setting.clocks == before else self._row.all
        brake = release = NO_SERVERS
        if self._braked_s == inf and reading.row_w > limit_w and reading.at_s > self._evaluated_s:
            self._braked_s, brake = now_s, self._row.all
            self.brakes += 1
        elif now_s >= self._braked_s + self._held_s and reading.row_w < RELEASED_BELOW * limit_w:
            self._braked_s, self._evaluated_s, release = inf, now_s, self._row.all
        return Commands(
            GuardMode.NORMAL if self._braked_s == inf else GuardMode.BRAKED, self._setting, command, brake, release
        )

    def calm(self) -> Calm:
        """Return the policy's calm range while the brake is off."""
        if self._braked_s < inf:
            return NOT_CALM
        return Calm(min(self._policy.calm_below_w(self._state, self._limit_w), self._limit_w), inf)


class Guarded:
    def __init__(self, policy: Policy[Any], *, row: Row, settings: GuardSettings, read_back_s: float) -> None:
        self.name, self.command_delay_s = policy.name, policy.command_delay_s
        self._guard = Guard(policy=policy, row=row, settings=settings)
        self._state = self._guard.start()
        self._read_back_s = max(read_back_s, WINDOW_S)
        self._telemetry: Telemetry | None = None
        self.events: list[object] = []

    @property
    def brakes(self) -> int:
        return self._state.brakes

    @property
    def reads_every_step(self) -> bool:
        """Return whether the guard is in a state other than normal."""
        return self._state.mode is not GuardMode.NORMAL

    def step(self, telemetry: Telemetry) -> Commands:
        self._state, commands = self._guard.step(self._state, telemetry)
        self._telemetry = telemetry
        if commands.events:
            self.events += commands.events
        return commands

    def calm(self) -> Calm:
        telemetry = self._telemetry
        if telemetry is None:
            return NOT_CALM
        calm = self._guard.calm(
            self._state, telemetry if telemetry.servers is None else telemetry._replace(servers=None)
        )
        if calm is NOT_CALM or not self._state.commands.open:
            return calm
        # The next read-back may change something.
        return Calm(calm.below_w, min(calm.until_s, self._read_back_s * (telemetry.now_s // self._read_back_s + 1)))


Control = PolicyAlone | Guarded


def settings_of(spec: RowSpec) -> GuardSettings:
    """Return the settings of a guard with the true parameters of its row, behind a feed that carries the budget.

    The standing budget is the rating, so a dead planner degrades clocks and does not brake.
    """
    return GuardSettings(
        rating_w=spec.budget_w,
        standing_w=spec.budget_w,
        telemetry_delay_s=spec.telemetry_delay_s,
        brake_s=spec.brake_delay_s,
    )


def row_of(servers: Records, model: ServerModel, jobs: Sequence[TrainingJob]) -> Row:
    duty = np.where(servers["job"] != NO_INDEX, Duty.TRAINING, servers["priority"]).astype(np.int64)
    return Row(models=(model,), kind=servers["kind"].astype(np.int64), duty=duty, training=_training(jobs))


def _training(jobs: Sequence[TrainingJob]) -> Draw | None:
    """Return a curve above those of all jobs."""
    if not jobs:
        return None
    floor_w = max(job.trough_w for job in jobs)
    return Draw(
        floor_w=floor_w,
        rise_w=max(job.compute_w for job in jobs) - floor_w,
        exponent=min(job.clock_exponent for job in jobs),
    )
