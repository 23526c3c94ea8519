"""The power of the next day by steps, with quantiles, from whole past days.

Formulas: docs/explanation/power/forecast.md.  Each profile is a weighted mean of past days.  Profiles differ in memory
and in the weight of days of the same kind, are smoothed by harmonics, and shifted by half of yesterday's deviation.
They are mixed by their errors so far.  Quantiles come from forecasting each past day from the days before it: the error
of the whole day, widened for few days (Student's t), and the error of each step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from fleet.documents import RuleError
from power.arrays import Floats
from power.forecast.history import DAY_S, Steps

DAY_QUANTILES = (0.5, 0.9, 0.99)
MIN_DAYS = 4
MAX_DAYS = 42  # past days used
HALF_LIVES = (1.5, 4.0, np.inf)  # days
OTHER_KIND = (1.0, 0.3, 0.03)  # weight of a day of another kind than the one forecast
HARMONICS = 8
SHIFT = 0.5  # share of yesterday's deviation
SHARPNESS = 8  # a course that was half as near as the best counts 2^-8 of it
SHRINK = 0.5  # of the mean error of past days that persists
FIRST_TRIED = 2  # days before the first one that is forecast for its error
DRAWS = 101  # of a day's error, evenly over its distribution
WEEK = 7
TINY_W = 1.0
FULL_SHARE = 0.5  # of its steps that a day must have to count


@dataclass(frozen=True, slots=True, eq=False)
class DayForecast:
    """Power of the steps of one day in watts, at quantiles."""

    step_s: float
    second_of_day: float  # where the first step begins
    quantiles: tuple[float, ...]
    watts: Floats  # [step, quantile]
    days: int  # past ones it was made from


def next_day(history: Steps, *, quantiles: Sequence[float] = DAY_QUANTILES) -> DayForecast:
    """Forecast the 24 hours after the last step, from all whole days before it."""
    RuleError.raise_for(
        (("quantiles", i), f"must be between 0 and 1, got {each:g}")
        for i, each in enumerate(quantiles)
        if not 0 < each < 1
    )
    past = _whole_days(history)
    weekday = None if history.weekday is None else _weekday_after(history, history.weekday)
    middle, off = _tried(past, weekday)
    spread_w = np.quantile(_errors(off), sorted(quantiles))
    watts = np.maximum(0.0, middle[:, None] + spread_w[None, :])
    begins_s = (history.second_of_day + len(history.watts) * history.step_s) % DAY_S
    return DayForecast(history.step_s, begins_s, tuple(sorted(quantiles)), watts, len(past))


def _whole_days(history: Steps) -> Floats:
    """Return [day, step], the last day ending with the history; missing steps are interpolated within the day."""
    per_day = history.per_day
    days = min(len(history.watts) // per_day, MAX_DAYS)
    table = history.watts[len(history.watts) - days * per_day :].reshape(days, per_day)
    full = np.isfinite(table).mean(axis=1) >= FULL_SHARE
    if full.sum() < MIN_DAYS or not full[-1]:
        need = f"must have at least {MIN_DAYS} whole days and the last one"
        raise RuleError([(("watts",), f"{need}, got {int(full.sum())} of {days}")])
    # A missing day repeats the one before it, so that the kinds of days keep their positions.
    first = int(np.argmax(full))
    table, full = table[first:].copy(), full[first:]
    steps = np.arange(per_day)
    for day in range(len(table)):
        known = np.isfinite(table[day])
        table[day] = np.interp(steps, steps[known], table[day][known]) if full[day] else table[day - 1]
    return table


def _weekday_after(history: Steps, weekday: int) -> int:
    """Return the weekday that covers most of the next 24 hours."""
    middle_s = history.second_of_day + len(history.watts) * history.step_s + DAY_S / 2
    return (weekday + int(middle_s // DAY_S)) % WEEK


def _kinds(days: int, weekday: int | None) -> npt.NDArray[np.bool_]:
    """Return which past days are of the next one's kind: working days or weekend; without dates, whole weeks ago."""
    age = np.arange(days, 0, -1)
    same: npt.NDArray[np.bool_] = age % WEEK == 0
    if weekday is not None:
        same = ((weekday - age) % WEEK >= 5) == (weekday >= 5)
    return same


def _tried(past: Floats, weekday: int | None) -> tuple[Floats, list[Floats]]:
    """Return the expected course of the next day, and the deviation of each past day from its own expected course."""
    days = len(past)
    kinds = [None if weekday is None else (weekday - (days - day)) % WEEK for day in range(days + 1)]
    distance = np.zeros(len(HALF_LIVES) * len(OTHER_KIND))
    off: list[Floats] = []
    before, mixed = _courses(past[:1], _kinds(1, kinds[1])), past[0]
    for day in range(FIRST_TRIED, days + 1):
        courses = _courses(past[:day], _kinds(day, kinds[day]))
        shifted = courses + SHIFT * (past[day - 1] - before).mean(axis=1, keepdims=True)
        mixed = _mixed(shifted, distance)
        if day < days:
            off.append(past[day] - mixed)
            distance += np.abs(past[day] - shifted).mean(axis=1)
        before = courses
    return mixed, off


def _mixed(courses: Floats, distance: Floats) -> Floats:
    least = float(distance.min())
    weights = ((least + TINY_W) / (distance + TINY_W)) ** SHARPNESS
    mixed: Floats = weights @ courses / weights.sum()
    return mixed


def _courses(past: Floats, same: npt.NDArray[np.bool_]) -> Floats:
    age = np.arange(len(past), 0, -1.0)
    courses = []
    for half_life in HALF_LIVES:
        for other in OTHER_KIND:
            weights = 0.5 ** (age / half_life) * np.where(same, 1.0, other)
            courses.append(_smooth(weights @ past / weights.sum()))
    return np.array(courses)


def _smooth(course: Floats) -> Floats:
    """Return the mean plus the first harmonics."""
    waves = np.fft.rfft(course)
    waves[HARMONICS + 1 :] = 0
    smooth: Floats = np.fft.irfft(waves, n=len(course))
    return smooth


def _errors(off: Sequence[Floats]) -> Floats:
    """Return the errors of a step: each error of a whole day combined with each error of a step."""
    of_days = np.array([float(each.mean()) for each in off])
    few = (1 + 1 / len(off)) ** 0.5  # the next day is one more draw
    of_steps = few * np.concatenate([each - each.mean() for each in off])
    bias = SHRINK * float(of_days.mean())
    freedom = max(1, len(off) - 1)
    spread_w = few * float(np.sqrt(np.sum((of_days - bias) ** 2) / freedom))
    whole = bias + spread_w * _student(freedom)
    off_w: Floats = (whole[:, None] + of_steps[None, :]).ravel()
    return off_w


def _student(freedom: int) -> Floats:
    """Return equal quantiles of Student's t, expanded around the normal (Abramowitz and Stegun 26.7.5)."""
    normal = NormalDist()
    z = np.array([normal.inv_cdf((i + 0.5) / DRAWS) for i in range(DRAWS)])
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    drawn: Floats = z + first / freedom + second / freedom**2
    return drawn
