"""What the guard is shown at each step, and what it orders."""

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from power.controls import Setting
from power.telemetry import Budget, Reading

if TYPE_CHECKING:
    from power.guard.states import Event, Mode

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

TOKEN_CLOCK, PROMPT_CLOCK, BRAKE, EPOCH = range(4)  # rows of `Servers.held`
NOBODY: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Servers:
    """What servers last said that holds on them, in the order of the row."""

    read_at_s: Floats  # minus infinity: never spoke
    held: Floats  # [4, servers]: clock writing tokens, clock reading prompts, braked (0 or 1), loads of the driver


class Telemetry(NamedTuple):
    """Everything that may be known at a moment; all of it may be missing, late or wrong."""

    now_s: float
    reading: Reading | None  # the newest, however old
    counts: Floats  # [kinds of server, priority, phase], as in `Seen`
    servers: Servers | None = None  # None: nothing is read back, nothing is verified
    budget: Budget | None = None  # the last that was accepted
    coming_w: float = inf  # the lowest limit that comes into force soon


class Orders(NamedTuple):
    """What to do now.  Doing it twice is doing it once."""

    mode: "Mode"
    setting: Setting  # in force: holds and routing for the router, clocks for those in `tell`
    tell: Ints = NOBODY  # servers to be told `setting.clocks`
    brake: Ints = NOBODY  # servers to brake
    release: Ints = NOBODY  # servers to release from the brake
    events: tuple["Event", ...] = ()

    @property
    def quiet(self) -> bool:
        """Nothing to send."""
        return not (self.tell.size or self.brake.size or self.release.size)


class Calm(NamedTuple):
    """When a step would change nothing: fresh readings stay below, budget and read-backs stay as they are."""

    below_w: float
    until_s: float


NOT_CALM = Calm(-inf, -inf)
