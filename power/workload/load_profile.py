"""The load profile of a row: over the day, over the week, and from one day to the next.

A shape has the distribution of levels (`levels`) and a latent series that orders them in time

    y(t) = sum over harmonics of (cosine * cos(2 pi t / period) + sine * sin(2 pi t / period)) + wander * u(t)

with `u` an Ornstein-Uhlenbeck process of correlation time `wander_s`, smoothed over `smooth_s`, of unit variance.  The
level at `t` is the quantile of `levels` at the rank of `y(t)` among all times.  So every seed gives other days with the
same hours at each level.  Level 1 is the peak; the load is linear between steps.  docs/explanation/power/simulator.md.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import accumulate, pairwise
from math import ceil
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from fleet.documents import Frozen, RuleError, Violation, parse_document, read_model
from power.arrays import Floats

DAY_S = 86_400.0
MIN_SOURCE_DAYS = 14  # a shorter run is cut from so many days: else its few hours would contain all levels
MAX_DAYS = 400

Level = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One course of the load: levels at even steps from time 0 on, linear between them."""

    step_s: float
    levels: Floats  # at 0, step_s, 2 * step_s ...: one more than there are steps

    def __post_init__(self) -> None:
        RuleError.raise_for(self._violations())
        self.levels.flags.writeable = False

    @property
    def duration_s(self) -> float:
        return self.step_s * (len(self.levels) - 1)

    @property
    def mean(self) -> float:
        return float(np.mean((self.levels[1:] + self.levels[:-1]) / 2))

    def at(self, time_s: Floats) -> Floats:
        return np.interp(time_s, self.step_s * np.arange(len(self.levels)), self.levels)

    def of_days(self, days: float) -> Self:
        """Return a course of `days` days: repeated if the run is longer, else the whole days around the peak."""
        if not 0 < days <= MAX_DAYS:
            raise RuleError([(("days",), f"must be above 0 and at most {MAX_DAYS}, got {days:g}")])
        wanted = max(1, round(days * DAY_S / self.step_s))
        steps = len(self.levels) - 1
        if wanted == steps:
            return self
        if wanted > steps:
            return type(self)(self.step_s, self.levels[np.arange(wanted + 1) % steps])
        day = max(1, round(DAY_S / self.step_s))
        first = min(int(np.argmax(self.levels)) // day * day, steps - wanted)
        if first + wanted < np.argmax(self.levels):  # a part of a day that would miss its peak
            first = int(np.argmax(self.levels)) - wanted // 2
        return type(self)(self.step_s, self.levels[first : first + wanted + 1].copy())

    def _violations(self) -> Iterator[Violation]:
        if not self.step_s > 0:
            yield ("step_s",), f"must be above 0, got {self.step_s:g}"
        if len(self.levels) < 2:
            yield ("levels",), f"must have at least two levels, got {len(self.levels)}"
        elif not np.all((self.levels >= 0) & (self.levels <= 1)):
            yield ("levels",), "must be between 0 and 1"


class Harmonic(Frozen):
    period_s: Annotated[float, Field(gt=0, le=1e8)]
    cosine: Annotated[float, Field(ge=-10, le=10)]
    sine: Annotated[float, Field(ge=-10, le=10)]


class Quantile(Frozen):
    """A quantile of the level: the load is at or below this level for this share of the time."""

    share: Level
    level: Level


class Shape(Frozen):
    """A law of the load, from which a seed draws a course."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    step_s: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    levels: Annotated[tuple[Quantile, ...], Field(min_length=2, max_length=10_000)]  # rising, from share 0 to 1
    harmonics: tuple[Harmonic, ...] = ()
    wander: Annotated[float, Field(ge=0, le=10)] = 0.0
    wander_s: Annotated[float, Field(gt=0, le=1e7)] = 10_800.0
    smooth_s: Annotated[float, Field(ge=0, le=86_400)] = 1800.0
    source: str = ""
    date: dt.date | None = None

    @model_validator(mode="after")
    def _rises_to_a_peak(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def drawn(self, *, days: float, rng: np.random.Generator) -> Curve:
        """Return a course of `days` days.  A course shorter than a fortnight contains the peak of a fortnight."""
        steps = ceil(max(days, MIN_SOURCE_DAYS) * DAY_S / self.step_s)
        time_s = self.step_s * np.arange(steps + 1, dtype=np.float64)
        latent = self._waves(time_s) + self.wander * self._wander(steps + 1, rng)
        ranks = np.argsort(np.argsort(latent, kind="stable"), kind="stable")
        shares, levels = ([point.share for point in self.levels], [point.level for point in self.levels])
        return Curve(self.step_s, np.interp(ranks / steps, shares, levels)).of_days(days)

    def _violations(self) -> Iterator[Violation]:
        first, last = self.levels[0], self.levels[-1]
        if first.share != 0 or last.share != 1:
            yield ("levels",), f"must run from share 0 to share 1, got {first.share:g} to {last.share:g}"
        if last.level != 1:
            yield ("levels",), f"must end at level 1, the peak, got {last.level:g}"
        for at, (one, other) in enumerate(pairwise(self.levels)):
            if other.share <= one.share or other.level < one.level:
                yield ("levels", at + 1), "must have a larger share than the one before it, and no lower level"

    def _waves(self, time_s: Floats) -> Floats:
        total = np.zeros_like(time_s)
        for wave in self.harmonics:
            angle = 2 * np.pi * time_s / wave.period_s
            total += wave.cosine * np.cos(angle) + wave.sine * np.sin(angle)
        return total

    def _wander(self, count: int, rng: np.random.Generator) -> Floats:
        width = max(1, round(self.smooth_s / self.step_s))
        kept = float(np.exp(-self.step_s / self.wander_s))
        shocks = rng.standard_normal(count + width - 1) * np.sqrt(1 - kept * kept)
        shocks[0] /= np.sqrt(1 - kept * kept)  # stationary from the start
        walked = np.fromiter(accumulate(shocks.tolist(), lambda value, shock: kept * value + shock), dtype=np.float64)
        smooth = np.convolve(walked, np.full(width, 1 / width), "valid")
        return np.asarray(smooth / np.sqrt(smoothed_covariance(kept, width=width, lag=0)))


def smoothed_covariance(kept: float, *, width: int, lag: int) -> float:
    """Return the covariance of means over `width` steps, `lag` apart, of a unit process that keeps so much per step."""
    steps = np.arange(width)
    return float(np.mean(kept ** np.abs(lag + steps[:, None] - steps)))


@cache
def builtin_shape() -> Shape:
    text = resources.files("power").joinpath("workload", "shape.yaml").read_text(encoding="utf-8")
    return read_model(parse_document(text, name="power/workload/shape.yaml"), Shape)
