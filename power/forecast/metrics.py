"""Quality of quantile forecasts (pinball loss, coverage), and the forecasts of a row at each reading."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from power.arrays import Floats
from power.forecast.short_term import RowForecast
from power.forecast.state_layout import LAGS, QUANTILES, UNIT_W


@dataclass(frozen=True, slots=True)
class Score:
    quantile: float
    coverage: float  # share of outcomes at or below it; honest where it equals the quantile
    pinball_w: float  # mean; the least belongs to the true quantile
    mean_w: float  # of the forecasts: the cost of a margin


def score(forecast_w: Floats, outcome_w: Floats, *, quantile: float) -> Score:
    off = outcome_w - forecast_w
    return Score(
        quantile=quantile,
        coverage=float(np.mean(off <= 0)),
        pinball_w=float(np.mean(np.maximum(quantile * off, (quantile - 1) * off))),
        mean_w=float(np.mean(forecast_w)),
    )


def highest_rise_w(watts: Floats, lag: int) -> Floats:
    """Return, for each reading, the highest of the next `lag` ones minus the reading; shorter by `lag`."""
    count = len(watts) - lag
    highest = np.max([watts[1 + i : 1 + i + count] for i in range(lag)], axis=0)
    rise: Floats = highest - watts[:count]
    return rise


def replayed(
    at_s: Floats, watts: Floats, *, step_s: float = 2.0, drivers_w: Sequence[Sequence[float]] | None = None
) -> Floats:
    """Return [reading, lag, quantile]: the rise forecast at each reading from the readings up to it."""
    forecast = RowForecast.start(step_s=step_s, drivers=len(drivers_w[0]) if drivers_w else 0)
    forecasts = np.empty((len(watts), len(LAGS) * len(QUANTILES)))
    for i, (at, row_w) in enumerate(zip(at_s.tolist(), watts.tolist(), strict=True)):
        known = drivers_w[i] if drivers_w else ()
        forecast = forecast.after(at_s=at, row_w=row_w, drivers_w=known)
        forecasts[i] = forecast.table[forecast.now :]
    rises_w: Floats = forecasts.reshape(len(watts), len(LAGS), len(QUANTILES)) * float(forecast.table[UNIT_W])
    return rises_w
