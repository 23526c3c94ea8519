"""The drift of expert loads: forecasts, the staleness of a placement, and its assessment on new loads.

docs/explanation/placement/migration.md has the formulas.
"""

from placement.drift.forecast import NAIVE, Forecast, Smoothing, Staleness, forecast, staleness

__all__ = ["NAIVE", "Forecast", "Smoothing", "Staleness", "forecast", "staleness"]
