"""Forecast metrics: power forecast, remaining time of the budget, admission limits."""

from prometheus_client import CollectorRegistry

from deploy.power_guard.metrics import ForecastMetrics
from power.controls import Setting
from power.telemetry import Budget, Reading


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"fleetwright_{name}", {"row": "r", **labels})


def full_step(*readings: Reading, budget: Budget | None = None, period_s: float = 2.0) -> CollectorRegistry:
    registry = CollectorRegistry()
    forecast_metrics = ForecastMetrics(registry, row="r", period_s=period_s)
    for reading in readings:
        forecast_metrics.update(
            now_s=reading.at_s + 2, reading=reading, budget=budget, setting=Setting(low_limit_w=90.0)
        )
    return registry


def test_the_forecast_is_above_the_reading_and_grows_with_the_quantile() -> None:
    registry = full_step(*(Reading(2.0 * i, 1e5) for i in range(5)))
    values = [value(registry, "row_power_forecast_watts", horizon="40s", quantile=q) for q in ("0.5", "0.99", "0.999")]
    known = [each for each in values if each is not None]
    assert len(known) == 3
    assert 1e5 <= known[0] < known[1] < known[2]


def test_a_repeated_reading_is_counted_once() -> None:
    once, twice = full_step(Reading(2.0, 1e5)), full_step(Reading(2.0, 1e5), Reading(2.0, 1e5))
    labels = {"horizon": "2s", "quantile": "0.999"}
    assert value(once, "row_power_forecast_watts", **labels) == value(twice, "row_power_forecast_watts", **labels)


def test_a_failed_forecast_is_omitted_and_other_metrics_are_exported() -> None:
    registry = full_step(Reading(2.0, 1e5), Reading(4.0, float("nan")))
    assert value(registry, "row_power_forecast_watts", horizon="2s", quantile="0.5") is None
    assert value(registry, "power_admission_limit_watts", priority="low") == 90


def test_horizons_beyond_the_forecast_are_omitted() -> None:
    registry = full_step(Reading(2.0, 1e5), period_s=0.5)
    assert value(registry, "row_power_forecast_watts", horizon="10s", quantile="0.5") is not None
    assert value(registry, "row_power_forecast_watts", horizon="40s", quantile="0.5") is None


def test_the_remaining_time_of_a_budget_is_exported_only_with_a_budget() -> None:
    assert value(full_step(Reading(2.0, 1e5)), "power_budget_remaining_seconds") is None
    assert value(full_step(Reading(2.0, 1e5), budget=Budget(1e5, 1.0)), "power_budget_remaining_seconds") == -3
