"""Operating points of a computation of a training iteration: a clock gives a time and an energy
(docs/explanation/power/training.md, 1).

A waiting board draws `blocked_w`.  Slowing a computation into time that it would wait anyway saves its power above
that, so operating points are compared by their effective energy, energy - blocked_w * time.  The points on the lower
convex hull are useful if clocks may be mixed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fleet.documents import RuleError, Violation
from power.measured_models.document import ClockShares, LimitSweep


class Choice(NamedTuple):
    clock: float
    time_s: float
    energy_j: float


@dataclass(frozen=True, slots=True)
class Computation:
    """A forward or backward pass of one microbatch on one stage."""

    name: str
    stage: int
    choices: tuple[Choice, ...]

    def __post_init__(self) -> None:
        RuleError.raise_for(self._violations())

    def _violations(self) -> Iterable[Violation]:
        if not self.choices:
            yield ("choices",), f"{self.name}: must have at least one"
        for at, choice in enumerate(self.choices):
            if not (0 < choice.clock <= 1 and 0 < choice.time_s < float("inf") and 0 <= choice.energy_j < float("inf")):
                message = f"{self.name}: clock must be in (0, 1], time_s above 0, energy_j from 0, got {tuple(choice)}"
                yield ("choices", at), message


def choices_of(
    *, time_s: float, power_w: float, curve: ClockShares | LimitSweep, sensitivity: float, clocks: Sequence[float]
) -> tuple[Choice, ...]:
    """Return a computation from its time and power at full clock; the clock curve gives the other points."""
    found = []
    for clock in clocks:
        longer = 1 + sensitivity * (1 / clock - 1)
        left = curve.floor_share + (1 - curve.floor_share) * float(clock**curve.exponent)
        found.append(Choice(clock, time_s * longer, time_s * longer * power_w * left))
    return tuple(found)


def efficient_choices(choices: Iterable[Choice], *, blocked_w: float) -> tuple[Choice, ...]:
    """Sort fastest first and keep only slower choices that save effective energy."""
    found: list[Choice] = []
    for choice in sorted(choices, key=lambda one: (one.time_s, one.energy_j)):
        if not found or effective_j(choice, blocked_w) < effective_j(found[-1], blocked_w):
            found.append(choice)
    return tuple(found)


def hull_of(choices: Iterable[Choice], *, blocked_w: float) -> tuple[Choice, ...]:
    """Return the points on the lower convex hull of (time, effective energy), fastest first."""
    hull: list[Choice] = []
    for choice in efficient_choices(choices, blocked_w=blocked_w):
        while len(hull) > 1 and _slope(hull[-2], choice, blocked_w) <= _slope(hull[-2], hull[-1], blocked_w):
            hull.pop()
        hull.append(choice)
    return tuple(hull)


def effective_j(choice: Choice, blocked_w: float) -> float:
    return choice.energy_j - blocked_w * choice.time_s


def _slope(fast: Choice, slow: Choice, blocked_w: float) -> float:
    return (effective_j(slow, blocked_w) - effective_j(fast, blocked_w)) / (slow.time_s - fast.time_s)
