"""Forecasts of a demand rate (requests/s or tokens/s) over the next minutes, as quantiles learnt from past errors.

`update` adds one window's mean rate to a `ForecastState`; `forecast` returns quantiles of the highest window rate
within a horizon.  docs/explanation/planner/demand-forecast.md has the formulation.
"""

from planner.forecast.state import ForecastState
from planner.forecast.step import forecast, update

__all__ = ["ForecastState", "forecast", "update"]
