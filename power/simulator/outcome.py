"""The outcome of a run: readings, requests, clocks, and summary figures."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from power.arrays import Bools, Floats, Ints
from power.controls import Clocks, Priority
from power.simulator.state import WINDOW_S, Records


class ClockChange(NamedTuple):
    at_s: float
    clocks: Clocks


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """All requests, in the order of pool and arrival; NaN for a time that was not reached."""

    pool: Ints
    priority: Ints
    server: Ints
    arrival_s: Floats
    start_s: Floats
    first_s: Floats  # its prompt was read
    finish_s: Floats
    held_since_s: Floats  # NaN: never waited for power

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def finished(self) -> Bools:
        return ~np.isnan(self.finish_s)

    @property
    def latency_s(self) -> Floats:
        """Return the time from arrival to the last token."""
        return self.finish_s - self.arrival_s

    @property
    def wait_s(self) -> Floats:
        """Return the time from arrival to the start of the prompt."""
        return self.start_s - self.arrival_s

    @property
    def admission_wait_s(self) -> Floats:
        """Return the part of the wait that was for power: first in the queue with a server free."""
        return np.where(np.isnan(self.held_since_s), 0.0, self.start_s - self.held_since_s)

    def of(self, priority: Priority) -> Bools:
        return np.equal(self.priority, int(priority))


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    policy: str
    budget_w: float
    servers: int
    duration_s: float
    brakes: int
    readings_w: Floats  # true mean of each window
    modelled_w: Floats  # by the nominal model, before correction
    energy_kwh: float
    utilisation: float  # share of serving servers that read or write, over time
    requests: Requests
    iterations: Ints  # of each training job
    clocks: tuple[ClockChange, ...]
    braked_s: tuple[tuple[float, float], ...]  # commands to engage and to release
    commands: int  # commands that took effect, server by server
    ignored: int
    ticks: int  # decisions taken
    events: tuple[object, ...] = field(default=())  # of the guard

    @property
    def peak_w(self) -> float:
        return float(self.readings_w.max(initial=0.0))

    @property
    def peak_utilization(self) -> float:
        return self.peak_w / self.budget_w

    @property
    def seconds_over_budget(self) -> float:
        """Return the time of windows with a mean above the budget."""
        return WINDOW_S * float(np.count_nonzero(self.readings_w > self.budget_w))


def requests_of(records: Records, *, pool: Ints, priority: Ints) -> Requests:
    names = ("server", "arrival_s", "start_s", "first_s", "finish_s", "held_since_s")
    return Requests(pool=pool, priority=priority, **{name: records[name].copy() for name in names})
