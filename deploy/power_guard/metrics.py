"""Metrics of the guard and its row, on /metrics of its own process.  The guard itself never queries Prometheus."""

from enum import StrEnum
from math import inf

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from power.controls import Setting
from power.forecast import RowForecast
from power.guard import Cause, Commands, Event, EventKind, GuardMode, GuardState
from power.telemetry import Budget, Reading

log = structlog.get_logger()

HORIZONS_S = (2.0, 10.0, 40.0)
QUANTILES = (0.5, 0.99, 0.999)
MAX_STEPS = 20  # longest horizon of a forecast

_ACTUATION_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_RECONCILE_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
_BRAKING = (Cause.OVER_BUDGET, Cause.TELEMETRY_LOST_TOO_LONG)


class Path(StrEnum):
    CLOCKS = "clocks"
    BRAKE = "brake"


class FetchResult(StrEnum):
    FOUND = "found"
    NONE = "none"
    FAILED = "failed"


class Source(StrEnum):
    PLANNED = "planned"  # the policy's
    APPLIED = "applied"  # commanded
    ENFORCED = "enforced"  # read back


class GuardMetrics:
    def __init__(self, registry: CollectorRegistry, *, row: str, full_clock_hz: float) -> None:
        self._row, self._full_hz = row, full_clock_hz

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"fleetwright_{name}", text, ["row", *labels], registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"fleetwright_{name}", text, ["row", *labels], registry=registry)

        self._power = gauge("row_power_watts", "The newest reading.")
        self._budget = gauge("row_power_budget_watts", "The limit above which the brake engages.")
        self._utilization = gauge("row_power_utilization_ratio", "Reading over budget.")
        self._age = gauge("row_power_reading_age_seconds", "Age of the newest reading.")
        self._caps = gauge("power_cap_watts", "Highest power of a server at its clocks.", "server", "source")
        self._clocks = gauge("gpu_clock_cap_hertz", "Clock in force, by priority and phase.", "phase")
        self._mode = gauge("guard_mode", "1 for the state that the guard is in.", "mode")
        self._unresponsive = gauge("guard_unresponsive_servers", "Servers that ignore commands or do not respond.")
        self._brakes = counter("power_brake_events", "Times that the brake was engaged.", "cause")
        self._exceeded = counter("power_budget_exceeded_seconds", "Time with the newest reading above the budget.")
        self._actuations = counter("power_cap_actuations", "Commands to servers.", "path", "result")
        self._events = counter("guard_events", "Events of the guard.", "kind")
        self._refused = counter("power_budget_refusals", "Budgets that were rejected.")
        self._fetches = counter("power_budget_fetches", "Fetches of the budget from the API.", "result")
        self._actuation_seconds = Histogram(
            "fleetwright_power_cap_actuation_seconds",
            "Time from a command to the server's response.",
            ["row", "path"],
            buckets=_ACTUATION_BUCKETS_S,
            registry=registry,
        )
        self._reconcile_seconds = Histogram(
            "fleetwright_guard_reconcile_duration_seconds",
            "Time from polling the agents to the last response to a command.",
            ["row"],
            buckets=_RECONCILE_BUCKETS_S,
            registry=registry,
        )
        for cause in _BRAKING:
            self._brakes.labels(row, cause.value)
        for kind in EventKind:
            self._events.labels(row, kind.value)
        for path in Path:
            for actuation in ("ok", "failed"):
                self._actuations.labels(row, path.value, actuation)
        for fetch in FetchResult:
            self._fetches.labels(row, fetch.value)
        self._exceeded.labels(row)
        self._refused.labels(row)

    def stepped(self, state: GuardState[object], commands: Commands, *, row_w: float | None, age_s: float) -> None:
        self._budget.labels(self._row).set(state.limit_w)
        if row_w is not None:
            self._power.labels(self._row).set(row_w)
            self._utilization.labels(self._row).set(row_w / state.limit_w)
            self._age.labels(self._row).set(age_s)
        for mode in GuardMode:
            self._mode.labels(self._row, mode.value).set(mode is state.mode)
        self._unresponsive.labels(self._row).set(int(state.commands.unresponsive.sum()))
        self._set_clocks(commands.setting)
        for event in commands.events:
            self._count_event(event)

    def exceeded(self, duration_s: float) -> None:
        """Add a time for which the newest reading was above the budget."""
        self._exceeded.labels(self._row).inc(duration_s)

    def cap(self, server: str, source: Source, watts: float) -> None:
        self._caps.labels(self._row, server, source.value).set(watts)

    def actuated(self, path: Path, result: str, *, duration_s: float) -> None:
        self._actuations.labels(self._row, path.value, result).inc()
        self._actuation_seconds.labels(self._row, path.value).observe(duration_s)

    def reconciled(self, duration_s: float) -> None:
        self._reconcile_seconds.labels(self._row).observe(duration_s)

    def budget_refused(self) -> None:
        self._refused.labels(self._row).inc()

    def budget_fetched(self, result: FetchResult, *, times: int = 1) -> None:
        self._fetches.labels(self._row, result.value).inc(times)

    def _count_event(self, event: Event) -> None:
        self._events.labels(self._row, event.kind.value).inc(max(1, len(event.servers)))
        if event.kind is EventKind.MODE and event.mode is GuardMode.BRAKED and event.cause in _BRAKING:
            self._brakes.labels(self._row, event.cause.value).inc()

    def _set_clocks(self, setting: Setting) -> None:
        for lever, clock in setting.clocks._asdict().items():
            self._clocks.labels(self._row, lever).set(clock * self._full_hz)


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
    """Return the forecast with its kernel loaded, so that no reconcile waits for it."""
    try:
        forecast.after(at_s=0.0, row_w=1.0)
    except Exception:
        log.exception("forecast_failed")
    return forecast
