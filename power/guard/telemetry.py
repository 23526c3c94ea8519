from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from power.arrays import Floats, Ints
from power.telemetry import Budget, Reading

TOKEN_CLOCK, PROMPT_CLOCK, BRAKE, EPOCH = range(4)  # rows of `Servers.held`
NO_SERVERS: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Servers:
    """The last state that each server reported, in the order of the row."""

    read_at_s: Floats  # minus infinity: never reported
    held: Floats  # [4, servers]: clock writing tokens, clock reading prompts, braked (0 or 1), loads of the driver


class Telemetry(NamedTuple):
    """The input of a step of the guard; every part may be missing, late or wrong."""

    now_s: float
    reading: Reading | None  # the newest, however old
    counts: Floats  # [server model, priority, phase], as in `RowObservation`
    servers: Servers | None = None  # None: no read-back at this step
    budget: Budget | None = None  # the last that was accepted
    coming_w: float = inf  # the lowest limit that comes into force soon
