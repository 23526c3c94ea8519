"""How expert loads drift: forecasts, and how stale a placement has become."""

from placement.drift.forecast import Forecast, forecast
from placement.drift.smoothing import NAIVE, Smoothing
from placement.drift.staleness import Expected, Staleness, staleness

__all__ = ["NAIVE", "Expected", "Forecast", "Smoothing", "Staleness", "forecast", "staleness"]
