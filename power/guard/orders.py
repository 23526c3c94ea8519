from math import inf
from typing import NamedTuple

from power.arrays import Ints
from power.controls import Setting
from power.guard.states import Event, GuardMode
from power.guard.telemetry import NO_SERVERS


class Orders(NamedTuple):
    """The output of a step of the guard.  Orders are idempotent."""

    mode: GuardMode
    setting: Setting  # in force: limits and routing for the router, clocks for the servers in `command`
    command: Ints = NO_SERVERS  # servers to command `setting.clocks`
    brake: Ints = NO_SERVERS  # servers to brake
    release: Ints = NO_SERVERS  # servers to release from the brake
    events: tuple[Event, ...] = ()

    @property
    def quiet(self) -> bool:
        """Return whether there is nothing to send."""
        return not (self.command.size or self.brake.size or self.release.size)


class Calm(NamedTuple):
    """The range in which a step changes nothing: fresh readings stay below, budget and read-backs do not change."""

    below_w: float
    until_s: float


NOT_CALM = Calm(-inf, -inf)
