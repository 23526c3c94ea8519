"""Metrics of what comes next: the forecast of the row, the budget's remaining time, and the admission limits.  No order
depends on them; a forecast that fails is left out.
"""

from math import inf

import structlog
from prometheus_client import CollectorRegistry, Gauge

from power.controls import Setting
from power.forecast import RowForecast
from power.telemetry import Budget, Reading

log = structlog.get_logger()

HORIZONS_S = (2.0, 10.0, 40.0)
QUANTILES = (0.5, 0.99, 0.999)
MAX_STEPS = 20  # longest horizon of a forecast


class ForecastMetrics:
    def __init__(self, registry: CollectorRegistry, *, row: str, period_s: float) -> None:
        self._row = row
        self._horizons_s = [horizon_s for horizon_s in HORIZONS_S if horizon_s <= MAX_STEPS * period_s]
        self._forecast = _ready(RowForecast.start(step_s=period_s))
        self._last_s = -inf
        self._watts = Gauge(
            "fleetwright_row_power_forecast_watts",
            "The highest reading expected within a horizon, at a quantile.",
            ["row", "horizon", "quantile"],
            registry=registry,
        )
        self._remaining = Gauge(
            "fleetwright_power_budget_remaining_seconds",
            "Time until the planner's budget expires; negative afterwards.",
            ["row"],
            registry=registry,
        )
        self._limits = Gauge(
            "fleetwright_power_admission_limit_watts",
            "Prompts of a priority wait while the row, as modelled, would draw more with them.",
            ["row", "priority"],
            registry=registry,
        )

    def update(self, *, now_s: float, reading: Reading | None, budget: Budget | None, setting: Setting) -> None:
        if budget is not None:
            self._remaining.labels(self._row).set(budget.expires_at_s - now_s)
        self._limits.labels(self._row, "low").set(setting.low_limit_w)
        self._limits.labels(self._row, "high").set(setting.high_limit_w)
        if reading is not None and reading.at_s > self._last_s:
            self._last_s = reading.at_s
            self._predict(reading)

    def _predict(self, reading: Reading) -> None:
        try:
            self._forecast = self._forecast.after(at_s=reading.at_s, row_w=reading.row_w)
        except Exception:
            log.exception("forecast_failed", row=self._row)
            self._watts.clear()
            return
        for horizon_s in self._horizons_s:
            for quantile in QUANTILES:
                watts = reading.row_w + self._forecast.rise_w(horizon_s, quantile)
                self._watts.labels(self._row, f"{horizon_s:g}s", f"{quantile:g}").set(watts)


def _ready(forecast: RowForecast) -> RowForecast:
    """Return the forecast with its kernel loaded, so that no cycle waits for it."""
    try:
        forecast.after(at_s=0.0, row_w=1.0)
    except Exception:
        log.exception("forecast_failed")
    return forecast
