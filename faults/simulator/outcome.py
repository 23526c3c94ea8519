"""The result of one job, or of several added up."""

from dataclasses import dataclass, field

from faults.diagnosis import Diagnosis
from faults.simulator.score import Tally


@dataclass(slots=True)
class Outcome:
    """The result of one job, or of several added up."""

    hours: float = 0.0
    tally: Tally = field(default_factory=Tally)
    spent_s: list[float] = field(default_factory=list)  # by the detectors, per window
    wrongs: list[tuple[float, Diagnosis]] = field(default_factory=list)

    def add(self, other: "Outcome") -> None:
        self.hours += other.hours
        self.tally.add(other.tally)
        self.spent_s += other.spent_s
        self.wrongs += other.wrongs
