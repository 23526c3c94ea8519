"""Forecasts of a row's power as JSON, for the command line and the API."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

import numpy as np
from pydantic import AwareDatetime, Field

from fleet.documents import Frozen
from power.arrays import Floats
from power.forecast.day_ahead import DayForecast, next_day
from power.forecast.history import DAY_S, MAX_WATTS, Readings
from power.forecast.metrics import highest_rise_w, replayed, score
from power.forecast.state_layout import LAGS, QUANTILES

MINUTE_S = 60.0
SHORT_STEP_S = 60.0  # longest gap between two readings for a short-term forecast
WARM = 600  # readings before forecasts are scored
MAX_GIVEN = 200_000  # readings of a request

Watts = Annotated[float, Field(ge=0, le=MAX_WATTS)]
ByQuantile = Mapping[str, float]


class Ahead(StrEnum):
    READINGS = "readings"
    DAY = "day"


class ForecastRequest(Frozen):
    """Readings of a row, and what to forecast from them."""

    at_s: Annotated[tuple[float, ...], Field(min_length=2, max_length=MAX_GIVEN, description="Times, rising.")]
    watts: Annotated[tuple[Watts, ...], Field(min_length=2, max_length=MAX_GIVEN, description="One for each time.")]
    start: AwareDatetime | None = Field(
        default=None, description="Moment of the first reading, which gives the days of the week."
    )
    ahead: Ahead = Field(default=Ahead.READINGS, description="The next readings, or the next day.")
    step_min: Annotated[float, Field(gt=0, le=720)] = Field(
        default=10.0, description="With `day`: minutes of a step, 5 to 15 are usual."
    )
    of: Literal["mean", "peak"] = Field(default="mean", description="With `day`: of the readings of each step.")

    def readings(self) -> Readings:
        at_s = np.array(self.at_s, dtype=np.float64)
        return Readings(at_s=at_s - at_s[0], watts=np.array(self.watts, dtype=np.float64), start=self.start)


class Horizon(Frozen):
    """How far the highest reading of a horizon may exceed the last one, by quantile."""

    horizon_s: float
    rise_w: ByQuantile
    coverage: ByQuantile | None = Field(
        description="Share of past outcomes below such forecasts; null: too few readings."
    )


class ReadingsForecast(Frozen):
    """The forecast of the next readings."""

    at_s: float
    row_w: float
    step_s: float
    horizons: tuple[Horizon, ...]


class DayStep(Frozen):
    """Power of a step, by quantile."""

    second_of_day: float
    watts: ByQuantile


class DayAhead(Frozen):
    """The forecast of the next day."""

    step_s: float
    past_days: int
    steps: tuple[DayStep, ...]


def forecast_power(request: ForecastRequest) -> ReadingsForecast | DayAhead:
    readings = request.readings()
    if request.ahead is Ahead.READINGS:
        return next_readings(readings)
    return day_ahead(readings, step_min=request.step_min, of=request.of)


def next_readings(readings: Readings) -> ReadingsForecast:
    step_s = min(SHORT_STEP_S, readings.step_s)
    forecasts = replayed(readings.at_s, readings.watts, step_s=step_s)
    return ReadingsForecast(
        at_s=float(readings.at_s[-1]),
        row_w=float(readings.watts[-1]),
        step_s=step_s,
        horizons=tuple(_horizon(readings, forecasts, lag, step_s) for lag in range(len(LAGS))),
    )


def day_ahead(readings: Readings, *, step_min: float, of: Literal["mean", "peak"]) -> DayAhead:
    day = next_day(readings.steps(step_min * MINUTE_S, of=of))
    return DayAhead(step_s=day.step_s, past_days=day.days, steps=tuple(_steps(day)))


def _steps(day: DayForecast) -> list[DayStep]:
    names = [f"{quantile:g}" for quantile in day.quantiles]
    return [
        DayStep(
            second_of_day=(day.second_of_day + number * day.step_s) % DAY_S,
            watts=dict(zip(names, map(float, watts), strict=True)),
        )
        for number, watts in enumerate(day.watts)
    ]


def _horizon(readings: Readings, forecasts: Floats, lag: int, step_s: float) -> Horizon:
    """Return the current rises, and the share of past outcomes below their forecasts."""
    outcome = highest_rise_w(readings.watts, LAGS[lag]) if len(readings.watts) > LAGS[lag] else np.empty(0)
    enough = len(outcome) > 2 * WARM
    return Horizon(
        horizon_s=LAGS[lag] * step_s,
        rise_w={f"{q:g}": max(0.0, float(forecasts[-1, lag, i])) for i, q in enumerate(QUANTILES)},
        coverage={
            f"{q:g}": score(forecasts[WARM : len(outcome), lag, i], outcome[WARM:], quantile=q).coverage
            for i, q in enumerate(QUANTILES)
        }
        if enough
        else None,
    )
