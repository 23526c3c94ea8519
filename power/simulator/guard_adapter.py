"""The guard as the controller of a simulated row."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from power.guard import NOT_CALM, Calm, Duty, Guard, GuardMode, GuardSettings, Orders, Row, Telemetry
from power.policies.interface import Policy
from power.server_model import Draw, ServerModel
from power.simulator.spec import RowSpec
from power.simulator.state import NO_INDEX, WINDOW_S, Records
from power.workload import TrainingJob


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


def row_of(servers: Records, models: Sequence[ServerModel], jobs: Sequence[TrainingJob]) -> Row:
    """Return the row in the guard's form."""
    duty = np.where(servers["job"] != NO_INDEX, Duty.TRAINING, servers["priority"]).astype(np.int64)
    return Row(models=tuple(models), kind=servers["kind"].astype(np.int64), duty=duty, training=_training(jobs))


class Guarded:
    def __init__(self, policy: Policy[Any], *, row: Row, settings: GuardSettings, read_back_s: float) -> None:
        self._guard = Guard(policy=policy, row=row, settings=settings)
        self._state = self._guard.start()
        self._read_back_s = max(read_back_s, WINDOW_S)
        self._telemetry: Telemetry | None = None
        self.events: list[object] = []

    @property
    def name(self) -> str:
        return self._guard.policy.name

    @property
    def command_delay_s(self) -> float:
        return self._guard.policy.command_delay_s

    @property
    def brakes(self) -> int:
        return self._state.brakes

    @property
    def reads_every_step(self) -> bool:
        """Return whether the guard is in a state other than normal."""
        return self._state.mode is not GuardMode.NORMAL

    def step(self, telemetry: Telemetry) -> Orders:
        self._state, orders = self._guard.step(self._state, telemetry)
        self._telemetry = telemetry
        if orders.events:
            self.events += orders.events
        return orders

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
