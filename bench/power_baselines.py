"""Baselines of the short-horizon power forecast: quantiles of the highest rise, fitted again every hour from the day
before and from outcomes known by then.

    rises of the day   persistence: the quantile of the last day's rises, independent of the current readings
    autoregression     least squares on the last readings, and the normal distribution of the residuals
    Holt               level and trend by exponential smoothing, and the normal distribution of the residuals
"""

from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from power.forecast.metrics import highest_rise_w

Floats = npt.NDArray[np.float64]
Baseline = Callable[[Floats, int, Sequence[float]], Floats]  # readings, lag, quantiles -> [reading, quantile]

DAY, HOUR = 43_200, 1_800  # readings each 2 s
ORDER = 5
LEVEL, TREND = 0.5, 0.05  # Holt's: plain choices, not tuned on these rows
_normal = NormalDist()


def rises_of_the_day(watts: Floats, lag: int, quantiles: Sequence[float]) -> Floats:
    """Persistence with the rises of the last day."""
    outcome = highest_rise_w(watts, lag)
    forecast = np.full((len(watts), len(quantiles)), np.nan)
    for start in range(HOUR, len(watts), HOUR):
        forecast[start : start + HOUR] = np.quantile(outcome[max(0, start - DAY) : start - lag], quantiles)
    return forecast


def autoregression(watts: Floats, lag: int, quantiles: Sequence[float]) -> Floats:
    """A straight line through the last readings."""
    features = np.column_stack([np.ones(len(watts)), *(_before(watts, i) for i in range(ORDER))])
    return _with_normal_errors(watts, lag, quantiles, features)


def holt(watts: Floats, lag: int, quantiles: Sequence[float]) -> Floats:
    """Level and trend: their prediction of the reading after the lag, and a constant for the highest before it."""
    level, trend, forecast = float(watts[0]), 0.0, np.empty(len(watts))
    for i, row_w in enumerate(watts.tolist()):
        before = level
        level = LEVEL * row_w + (1 - LEVEL) * (level + trend)
        trend = TREND * (level - before) + (1 - TREND) * trend
        forecast[i] = level + lag * trend - row_w
    outcome = highest_rise_w(watts, lag)
    found = np.full((len(watts), len(quantiles)), np.nan)
    for start in range(HOUR, len(watts), HOUR):
        known = slice(max(0, start - DAY), start - lag)
        found[start : start + HOUR] = forecast[start : start + HOUR, None] + _normally(
            outcome[known] - forecast[known], quantiles
        )
    return found


def _with_normal_errors(watts: Floats, lag: int, quantiles: Sequence[float], features: Floats) -> Floats:
    outcome = highest_rise_w(watts, lag)
    found = np.full((len(watts), len(quantiles)), np.nan)
    for start in range(HOUR, len(watts), HOUR):
        known = slice(max(0, start - DAY), start - lag)
        weights, *_ = np.linalg.lstsq(features[known], outcome[known], rcond=None)
        spread = _normally(outcome[known] - features[known] @ weights, quantiles)
        found[start : start + HOUR] = (features[start : start + HOUR] @ weights)[:, None] + spread
    return found


def _normally(off: Floats, quantiles: Sequence[float]) -> Floats:
    return float(off.mean()) + float(off.std()) * np.array([_normal.inv_cdf(each) for each in quantiles])


def _before(watts: Floats, steps: int) -> Floats:
    return watts if steps == 0 else np.concatenate([np.full(steps, watts[0]), watts[:-steps]])


BASELINES: dict[str, Baseline] = {"rises_of_the_day": rises_of_the_day, "ar": autoregression, "holt": holt}
