"""The output of a step of the guard."""

from math import inf
from typing import NamedTuple

from power.arrays import Ints
from power.controls import Setting
from power.guard.states import Event, GuardMode
from power.guard.telemetry import NO_SERVERS


class Orders(NamedTuple):
    """What to do now.  Doing it twice is doing it once."""

    mode: GuardMode
    setting: Setting  # in force: holds and routing for the router, clocks for those in `tell`
    command: Ints = NO_SERVERS  # servers to be told `setting.clocks`
    brake: Ints = NO_SERVERS  # servers to brake
    release: Ints = NO_SERVERS  # servers to release from the brake
    events: tuple[Event, ...] = ()

    @property
    def quiet(self) -> bool:
        """Nothing to send."""
        return not (self.command.size or self.brake.size or self.release.size)


class Calm(NamedTuple):
    """When a step would change nothing: fresh readings stay below, budget and read-backs stay as they are."""

    below_w: float
    until_s: float


NOT_CALM = Calm(-inf, -inf)
