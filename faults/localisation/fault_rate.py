"""The rate of faults in a job, estimated online as a prior for the next one.

A gamma prior of one fault in `fault_every_h` hours, and the diagnoses since: the rate is (1 + n) / (fault_every_h + t),
n and t forgotten over a day.  It changes the confidence of a diagnosis, and no bar.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from faults.diagnosis import Diagnosis, Scope

MEMORY_H: Final = 24.0

Place = tuple[Scope, int | None, int | None, str | None]


@dataclass(frozen=True, slots=True)
class FaultRate:
    """The fault rate of one job."""

    count: float = 0.0  # of reported faults
    hours: float = 0.0
    open: frozenset[Place] = frozenset()  # the active diagnoses

    def after(self, seconds: float) -> "FaultRate":
        """Return the rate after a time without a new fault."""
        hours = seconds / 3600.0
        keep = math.exp(-hours / MEMORY_H)
        return replace(self, count=keep * self.count, hours=keep * self.hours + hours)

    def after_diagnoses(self, diagnoses: Iterable[Diagnosis]) -> "FaultRate":
        """Count the diagnoses at the end of a window; a continued one is no new fault."""
        now = frozenset((one.scope, one.node, one.peer, one.switch) for one in diagnoses)
        return replace(self, count=self.count + len(now - self.open), open=now)

    def every_h(self, prior_h: float) -> float:
        """Return the mean hours between two faults."""
        return (prior_h + self.hours) / (1.0 + self.count)
