"""A row, a scripted policy, and a way to run a guard through time."""

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np

from power.arrays import Floats
from power.controls import UNTOUCHED, Clocks, Setting
from power.guard import Commands, Guard, GuardMode, GuardSettings, GuardState, Row, Servers, Telemetry
from power.server_model import BLOOM_A100
from power.telemetry import Budget, Reading, RowObservation

SERVERS = 58
LIMIT_W = 211_600.0  # 40 servers at 5.29 kW
COUNTS: Floats = np.zeros((1, 2, 5))
FOR_EVER_S = 1e9


class FixedPolicy(NamedTuple):
    """A policy with one setting that records its observations."""

    setting: Setting = UNTOUCHED
    command_delay_s: float = 1.0
    calm_w: float = inf

    @property
    def name(self) -> str:
        return "fixed"

    def start(self) -> tuple[RowObservation, ...]:
        return ()

    def decide(
        self, state: tuple[RowObservation, ...], observed: RowObservation
    ) -> tuple[tuple[RowObservation, ...], Setting]:
        return (*state[-9:], observed), self.setting

    def calm_below_w(self, state: tuple[RowObservation, ...], budget_w: float) -> float:  # noqa: ARG002 - the port's
        return min(self.calm_w, budget_w)


def row(servers: int = SERVERS) -> Row:
    """Half low priority, half high."""
    return Row(models=(BLOOM_A100,), kind=np.zeros(servers, np.int64), duty=np.arange(servers) % 2)


@dataclass
class GuardedRow:
    """A guard with a row that executes its commands, unless a test changes that."""

    policy: FixedPolicy = field(default_factory=FixedPolicy)
    settings: GuardSettings = field(default_factory=lambda: GuardSettings(rating_w=LIMIT_W))
    servers: int = SERVERS
    now_s: float = 0.0
    read_back: bool = True

    def __post_init__(self) -> None:
        self.guard = Guard(policy=self.policy, row=row(self.servers), settings=self.settings)
        self.state: GuardState[tuple[RowObservation, ...]] = self.guard.start()
        self.held = np.vstack([np.ones((2, self.servers)), np.zeros(self.servers), np.ones(self.servers)])
        self.read_at_s = np.zeros(self.servers)
        self.unresponsive = np.zeros(self.servers, dtype=np.bool_)
        self.budget: Budget | None = Budget(LIMIT_W, FOR_EVER_S)
        self.reading: Reading | None = None
        self.all: list[Commands] = []

    def step(self, row_w: float | None = None, *, after_s: float = 2.0, coming_w: float = inf) -> Commands:
        """Step the guard after `after_s`; `row_w`: a new reading."""
        self.now_s += after_s
        if row_w is not None:
            self.reading = Reading(self.now_s, row_w)
        self.read_at_s = np.full(self.servers, self.now_s)
        self.state, commands = self.guard.step(self.state, self.telemetry(coming_w=coming_w))
        self.execute(commands)
        self.all.append(commands)
        return commands

    def telemetry(self, *, coming_w: float = inf) -> Telemetry:
        """Return the present telemetry."""
        servers = Servers(self.read_at_s, self.held.copy()) if self.read_back else None
        return Telemetry(self.now_s, self.reading, COUNTS, servers, self.budget, coming_w)

    def execute(self, commands: Commands) -> None:
        """Execute the commands at once; unresponsive servers do nothing."""
        command = commands.command[~self.unresponsive[commands.command]]
        self.held[:2, command] = self.guard.row.clocks_of(commands.setting.clocks)[:, command]
        self.held[2, commands.brake] = 1.0
        self.held[2, commands.release] = 0.0

    def mode(self) -> GuardMode:
        """The state that the guard is in."""
        return self.state.mode

    def steady(self, row_w: float = 0.8 * LIMIT_W, *, steps: int = 3) -> "GuardedRow":
        """Steps with a constant reading."""
        for _ in range(steps):
            self.step(row_w)
        return self


def no_faster(clocks: Clocks, bound: Clocks) -> bool:
    """Return whether no clock is above the bound."""
    return all(mine <= theirs + 1e-9 for mine, theirs in zip(clocks, bound, strict=True))
