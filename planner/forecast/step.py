"""The pure step of a forecast: `update` adds a window and corrects the quantiles, `forecast` returns them.

For each candidate, the errors of its own past forecasts in the history give its quantile (split conformal prediction,
weighted by age).  Candidates are averaged with weights that fall with their pinball loss.  The correction of a quantile
rises when an outcome exceeds the quantile and falls slowly otherwise (Gibbs and Candes 2021), so its long-run coverage
does not depend on any assumption about the demand.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log, sqrt

import numpy as np
import numpy.typing as npt

from fleet.documents import RuleError
from planner.forecast.candidates import Candidates, Floats, History
from planner.forecast.state import HORIZONS, QUANTILES, ForecastState

FIRST_ERRORS = (-0.3, 0.0, 0.4, 1.0)  # of the mean rate, before any error is known
FIRST_WEIGHT = 0.5  # each, where a new error weighs 1
TAIL_ERRORS = 10.0  # a quantile remembers so many errors above it
SELECTIVITY = 8  # a candidate with twice the loss has a weight of 2 ** -8
PACE = 0.006  # of the corrections
MAX_QUANTILE = 0.999


@dataclass(frozen=True, slots=True)
class Quantile:
    value: float
    spread: float


def update(state: ForecastState, *, rate: float, at_s: float) -> ForecastState:
    """Add the mean rate of the window that ends at `at_s` (Unix seconds).  Windows in between count as missing."""
    after = state.with_window(rate=rate, at_s=at_s)
    history = History.of(after)
    rows = [_corrected(history, ahead, row) for ahead, row in zip(HORIZONS, after.corrections, strict=True)]
    return after.model_copy(update={"corrections": tuple(rows)})


def forecast(state: ForecastState, *, horizon_s: float, quantiles: Sequence[float]) -> tuple[float, ...]:
    """Return quantiles of the highest rate of any window within `horizon_s` after the newest window."""
    longest_s = HORIZONS[-1] * state.window_s
    if not 0 < horizon_s <= longest_s:
        raise RuleError([(("horizon_s",), f"must be above 0 and at most {longest_s:g}, got {horizon_s:g}")])
    for quantile in quantiles:
        if not QUANTILES[0] <= quantile <= MAX_QUANTILE:
            expected = f"must be from {QUANTILES[0]} to {MAX_QUANTILE}"
            raise RuleError([(("quantiles",), f"{expected}, got {quantile:g}")])
    if not state.rates:
        raise RuleError([(("rates",), "must have at least one window")])
    ahead = max(1, ceil(horizon_s / state.window_s - 1e-9))
    history, order, values = History.of(state), sorted(set(quantiles)), {}
    highest = float(history.rates[-2:].min())  # a rise that has lasted two windows counts, whatever the errors were
    for quantile, raw in zip(order, _uncorrected(history, len(state.rates), ahead, order), strict=True):
        highest = max(highest, raw.value + _correction(state, ahead, quantile) * raw.spread)
        values[quantile] = highest
    return tuple(values[quantile] for quantile in quantiles)


def _corrected(history: History, ahead: int, row: tuple[float, ...]) -> tuple[float, ...]:
    """Move the corrections of a horizon by the outcome of the forecast made that long ago."""
    until = len(history.rates) - ahead
    if until < 1 or np.isnan(history.present[until - 1]):
        return row
    outcome = float(np.nanmax(history.present[until:]))
    moved = []
    for quantile, raw, correction in zip(QUANTILES, _uncorrected(history, until, ahead, QUANTILES), row, strict=True):
        above = outcome > raw.value + correction * raw.spread
        pace = PACE / sqrt((1 - quantile) * ahead)  # one burst is part of as many outcomes as the horizon is long
        moved.append(round(correction + pace * (above - (1 - quantile)), 6))
    return tuple(moved)


def _correction(state: ForecastState, ahead: int, quantile: float) -> float:
    """Interpolate the correction between horizons and between quantiles."""
    upper = min(bisect_right(HORIZONS, ahead), len(HORIZONS) - 1)
    share = log(ahead / HORIZONS[upper - 1]) / log(HORIZONS[upper] / HORIZONS[upper - 1])
    low, high = state.corrections[upper - 1], state.corrections[upper]
    row = [(1 - share) * before + share * after for before, after in zip(low, high, strict=True)]
    return float(np.interp(-log(1 - quantile), [-log(1 - each) for each in QUANTILES], row))


def _uncorrected(history: History, until: int, ahead: int, quantiles: Sequence[float]) -> list[Quantile]:
    """Return the averages of the candidates' quantiles as they were after the first `until` windows."""
    known = history.candidates(until=until, ahead=ahead)
    errors = _Errors.of(history, known, ahead)
    lower_of_two = float(history.rates[max(0, until - 2) : until].min())
    found = []
    for quantile in quantiles:
        values, losses = errors.at(quantile)
        chosen = _average(values, losses, errors.spreads_now)
        if chosen.value < lower_of_two:  # the rate has risen for two windows: slow candidates do not count
            at = list(known.prompt)
            chosen = _average(values[at], losses[at], errors.spreads_now[at])
        found.append(chosen)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Errors:
    """The past errors of each candidate in units of its spread, in rising order."""

    locations_now: Floats  # [candidate]
    spreads_now: Floats
    scaled: Floats  # [candidate, error]
    spreads: Floats  # likewise, at the time of the forecast
    ages: Floats  # [error, unsorted], in windows since the outcome; NaN for one of the first errors
    order: npt.NDArray[np.int64]  # [candidate, error]

    @classmethod
    def of(cls, history: History, known: Candidates, ahead: int) -> "_Errors":
        count, until = known.locations.shape
        origins, outcomes = np.arange(max(0, until - ahead)), np.empty(0)
        if len(origins):
            later = np.lib.stride_tricks.sliding_window_view(history.present[1:until], ahead)
            complete = ~(np.isnan(later).all(axis=1) | np.isnan(history.present[origins]))
            origins, outcomes = origins[complete], np.nanmax(later[complete], axis=1)
        first = known.mean * np.broadcast_to(FIRST_ERRORS, (count, len(FIRST_ERRORS)))
        now = known.spreads[:, -1]
        spreads = np.concatenate([known.spreads[:, origins], np.broadcast_to(now[:, None], first.shape)], axis=1)
        scaled = np.concatenate([outcomes - known.locations[:, origins], first], axis=1) / spreads
        ages = np.concatenate([until - 1.0 - ahead - origins, np.full(len(FIRST_ERRORS), np.nan)])
        order = np.argsort(scaled, axis=1, kind="stable")
        return cls(
            known.locations[:, -1],
            now,
            np.take_along_axis(scaled, order, axis=1),
            np.take_along_axis(spreads, order, axis=1),
            ages,
            order,
        )

    def at(self, quantile: float) -> tuple[Floats, Floats]:
        """Return each candidate's quantile and its mean pinball loss."""
        fade = 1 - (1 - quantile) / TAIL_ERRORS
        weights = np.where(np.isnan(self.ages), FIRST_WEIGHT, fade**self.ages)[self.order]
        sums = np.cumsum(weights, axis=1)
        total = sums[:, -1:]
        reached = sums >= quantile * (total + 1) - 1e-12  # 1: the outcome to come
        reached[:, -1] = True
        factor = np.take_along_axis(self.scaled, reached.argmax(axis=1)[:, None], axis=1)
        off = (self.scaled - factor) * self.spreads
        losses = (np.maximum(quantile * off, (quantile - 1) * off) * weights).sum(axis=1) / total[:, 0]
        return self.locations_now + factor[:, 0] * self.spreads_now, losses


def _average(values: Floats, losses: Floats, spreads: Floats) -> Quantile:
    losses = losses + 1e-12 + 1e-9 * losses.max()
    weights = (losses.min() / losses) ** SELECTIVITY
    weights /= weights.sum()
    return Quantile(float(weights @ values), float(weights @ spreads))
