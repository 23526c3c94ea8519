"""The axes of a sweep: the scaled values of a request, and the factors."""

from enum import StrEnum
from math import isfinite
from typing import Self

from pydantic import Field

from fleet.documents import Frozen, RuleError

MAX_POINTS = 10_000
MAX_SHOWN = 60  # characters of the input in an error


class Knob(StrEnum):
    """The values that an axis scales."""

    RATE = "rate"  # of all workloads, or of one
    SLO = "slo"  # every limit of all workloads, or of one
    PRICE = "price"  # of all GPUs, or of one type
    POWER = "power"  # of all power domains, or of one

    @property
    def harder_upwards(self) -> bool | None:
        """Whether more is harder to serve; None for prices, which are not ranked."""
        return {Knob.RATE: True, Knob.SLO: False, Knob.POWER: False}.get(self)


class Axis(Frozen):
    """The scaled values and their factors."""

    knob: Knob
    subject: str | None = Field(default=None, description="A workload, GPU type or power domain; absent: all of them.")
    factors: tuple[float, ...] = Field(min_length=1, max_length=MAX_POINTS)

    @property
    def name(self) -> str:
        """`rate`, or `price:H100`."""
        return str(self.knob) if self.subject is None else f"{self.knob}:{self.subject}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """`rate=1,2,4`, `slo:chat=0.5:2:7` (from 0.5 to 2 in 7 steps of equal ratio)."""
        name, _, values = text.partition("=")
        knob, _, subject = name.strip().partition(":")
        if knob not in set(Knob):
            known = ", ".join(Knob)
            raise RuleError([((), f"{text!r} does not begin with one of {known}: expected KNOB[:NAME]=FACTORS")])
        return cls(knob=Knob(knob), subject=subject or None, factors=_factors(values, text))


def _factors(values: str, text: str) -> tuple[float, ...]:
    try:
        if ":" in values:
            low, high, count = values.split(":")
            return _geometric(float(low), float(high), int(count))
        return _listed([float(value) for value in values.split(",")])
    except ValueError:
        example = "expected numbers as in rate=0.5,1,2 or rate=0.5:2:7 (from, to, how many)"
        shown = values if len(values) <= MAX_SHOWN else f"{values[:MAX_SHOWN]}..."
        name = text.partition("=")[0]
        raise RuleError([((), f"{name}: {shown!r} are no factors, {example}, at most {MAX_POINTS:,}")]) from None


def _listed(factors: list[float]) -> tuple[float, ...]:
    if not all(map(isfinite, factors)) or len(factors) > MAX_POINTS:
        raise ValueError(factors)
    return tuple(factors)


def _geometric(low: float, high: float, count: int) -> tuple[float, ...]:
    if not (0 < low < high < float("inf") and 2 <= count <= MAX_POINTS):
        raise ValueError(low, high, count)
    ratio = (high / low) ** (1 / (count - 1))
    return tuple(round(low * ratio**step, 9) for step in range(count))
