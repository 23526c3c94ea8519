"""Candidate forecasts: each has a location of the highest rate and a spread, at every window of the history.

| location | follows |
|---|---|
| newest rate | every change, and all noise |
| median of the last two rates and their mean over 16 windows | a change that lasts two windows, and no single peak |
| mean over 4 windows | slow changes |
| mean over 240 windows | nothing; suits bursts around a constant rate |
| newest rate and the rise of the same half hours on other days | times of the day |

A spread is constant, or proportional to the mean absolute change of the last windows: noise comes in phases.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from planner.forecast.state import DAY_SLOTS, HORIZONS, SLOT_S, WEEK_SLOTS, ForecastState

Floats = npt.NDArray[np.float64]

BRIEF, LONG, ALL = 4, 16, 240  # windows that a mean remembers
CHANGES = 8  # windows of the mean absolute change
MIN_SPREAD = 0.05  # of the mean rate
MIN_RATE = 1e-9
OTHER_DAYS = range(1, 7)
DAY_S = DAY_SLOTS * SLOT_S


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    locations: Floats  # [candidate, window]
    spreads: Floats  # likewise, above 0
    mean: float  # of the history's rates, above 0
    prompt: tuple[int, ...]  # the candidates that follow a change within two windows


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What the candidates of every horizon share."""

    present: Floats  # rates, NaN where missing
    rates: Floats  # a missing one repeats the rate before it
    steady: Floats
    brief: Floats
    whole: Floats
    changes: Floats
    course: Floats  # of other days, over the history and the longest horizon; NaN where unknown

    @classmethod
    def of(cls, state: ForecastState) -> Self:
        present = np.array([np.nan if rate is None else rate for rate in state.rates])
        rates = present[np.maximum.accumulate(np.where(np.isnan(present), 0, np.arange(len(present))))]
        rates = np.nan_to_num(rates)
        before = np.concatenate([rates[:1], rates[:-1]])
        return cls(
            present=present,
            rates=rates,
            steady=np.median(np.stack([_means(rates, LONG), rates, before]), axis=0),
            brief=_means(rates, BRIEF),
            whole=_means(rates, ALL),
            changes=_means(np.abs(rates - before), CHANGES),
            course=_course(state),
        )

    def candidates(self, *, until: int, ahead: int) -> Candidates:
        """Return the candidates as they were after the first `until` windows."""
        rates, steady, whole = self.rates[:until], self.steady[:until], self.whole[:until]
        mean = max(float(rates.mean()), MIN_RATE)
        constant = np.full(until, mean)
        moving = self.changes[:until] + MIN_SPREAD * mean
        highest = np.lib.stride_tricks.sliding_window_view(self.course[1 : until + ahead], ahead).max(axis=1)
        daily = np.maximum(rates + np.nan_to_num(highest - self.course[:until]), 0.0)
        pairs = (
            (rates, moving),
            (rates, constant),
            (steady, moving),
            (steady, constant),
            (daily, moving),
            (self.brief[:until], moving),
            (whole, moving),
            (whole, constant),
        )
        locations, spreads = (np.stack(column) for column in zip(*pairs, strict=True))
        return Candidates(locations, spreads, mean, prompt=(0, 1, 2, 3))


def _means(values: Floats, memory: int) -> Floats:
    """Return exponential means, without bias to the first value."""
    share, total, weight, means = 1 - 1 / memory, 0.0, 0.0, []
    for value in values.tolist():
        total, weight = total * share + value, weight * share + 1
        means.append(total / weight)
    return np.array(means)


def _course(state: ForecastState) -> Floats:
    """Return the mean rate of the six other days of the week at the same time, without values from a later day."""
    windows, now_s = len(state.rates), state.ended_at_s or 0.0
    middles_s = now_s + state.window_s * (np.arange(windows + HORIZONS[-1]) - windows + 0.5)
    week = np.array([np.nan if mean is None else mean for mean in state.week])
    total, count = np.zeros(len(middles_s)), np.zeros(len(middles_s))
    if not np.isnan(week).all():
        for day in OTHER_DAYS:
            place = (middles_s - day * DAY_S) / SLOT_S - 0.5
            slot = np.floor(place).astype(np.int64)
            share = place - slot
            mean = (1 - share) * week[slot % WEEK_SLOTS] + share * week[(slot + 1) % WEEK_SLOTS]
            earlier = ~np.isnan(mean) & (middles_s + (7 - day) * DAY_S > now_s)  # not yet replaced by a later day
            total[earlier] += mean[earlier]
            count[earlier] += 1
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
