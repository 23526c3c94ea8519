"""The drift of expert loads: forecasts, the staleness of a placement, and its assessment on new loads.

docs/explanation/placement/migration.md has the formulas.
"""

from placement.drift.forecast import Forecast, forecast
from placement.drift.smoothing import NAIVE, Smoothing
from placement.drift.staleness import Expected, Staleness, staleness

__all__ = ["NAIVE", "Expected", "Forecast", "Smoothing", "Staleness", "forecast", "staleness"]
