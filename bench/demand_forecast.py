"""Demand forecasts on the public traces: pinball loss and coverage of the highest window rate within a horizon.

Parameters and candidates were chosen on the traces to fit (`bench.demand_series`); rows are the traces to report.
Every forecast uses the windows before it alone; scores begin with the 11th window, so they contain the cold start.
Losses are ratios to that of the last value, per quantile.  `coverage` is the share of outcomes at or below the
quantile, `windows_below` the share of windows at or below the quantile that was forecast for them a horizon before:
what a planner with this warm-up serves.  Baselines take quantiles of their own errors of the last 240 windows:

    last value      the newest rate
    seasonal naive  the newest rate until a day is known, then the highest rate of the same windows of yesterday
    Holt-Winters    damped trend and additive season of a day, by exponential smoothing
    recent quantile what `planner.stability` alone plans for: the 0.9 quantile of the last 24 windows, and 5 %
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bench.demand_series import REPORT, Demand, Floats, demands
from bench.harness import Row
from planner.forecast import ForecastState, forecast, update

QUANTILES = (0.9, 0.95, 0.99)
FIRST_SCORED = 10
ERRORS = 240
FIRST_ERRORS = np.array((-0.3, 0.0, 0.4, 1.0))  # of the mean rate, as in the forecast
LEVEL, TREND, SEASON, DAMPING = 0.5, 0.05, 0.1, 0.9
START_S = 1_700_006_400.0  # any midnight

Method = Callable[[Demand], dict[float, Floats]]  # by horizon: [window, quantile]


def run() -> list[Row]:
    return scores(REPORT)


def scores(part: str, methods: dict[str, Method] | None = None) -> list[Row]:
    methods = methods or METHODS
    groups: dict[tuple[str, float, float], list[Row]] = {}
    for demand in demands(part):
        results = {name: method(demand) for name, method in methods.items()}
        for horizon_s in demand.horizons_s:
            one = {name: _score(demand, horizon_s, by[horizon_s]) for name, by in results.items()}
            groups.setdefault((demand.group, demand.window_s, horizon_s), []).append(one)
    rows = [_row(*key, group) for key, group in groups.items()]
    return [*rows, _summary(rows)] if rows else []


def _score(demand: Demand, horizon_s: float, quantiles: Floats) -> Row:
    ahead = round(horizon_s / demand.window_s)
    outcome = highest(demand.rates, ahead=ahead)
    scored = slice(FIRST_SCORED, len(outcome))
    off = outcome[scored, None] - quantiles[scored]
    last = demand.rates[ahead:, None][scored] - quantiles[scored]
    losses = np.maximum(off * QUANTILES, off * np.subtract(QUANTILES, 1)).mean(axis=0) / demand.rates.mean()
    return {
        "forecasts": len(off),
        "losses": losses,  # in units of the mean rate
        "coverage": np.mean(off <= 0, axis=0),
        "windows_below": np.mean(last <= 0, axis=0),
    }


def highest(rates: Floats, *, ahead: int) -> Floats:
    """Return, for each window but the last, the highest rate of the next `ahead` windows; shorter by `ahead`."""
    later: Floats = np.lib.stride_tricks.sliding_window_view(rates[1:], ahead).max(axis=1)
    return later


def _row(group: str, window_s: float, horizon_s: float, series: Sequence[Row]) -> Row:
    forecasts = sum(one["last_value"]["forecasts"] for one in series)
    row: Row = {"trace": group, "window_s": window_s, "horizon_s": horizon_s, "forecasts": forecasts}
    losses = {name: np.sum([one[name]["losses"] for one in series], axis=0) for name in series[0]}
    base = losses.pop("last_value")
    for name, loss in losses.items():
        row |= _by_quantile(name, loss / base)
    for figure in ("coverage", "windows_below"):
        row |= _by_quantile(figure, np.mean([one["fleetwright"][figure] for one in series], axis=0))
    return row


def _by_quantile(figure: str, values: Floats) -> Row:
    return {f"{figure}_{quantile:g}": float(value) for quantile, value in zip(QUANTILES, values, strict=True)}


def _summary(rows: Sequence[Row]) -> Row:
    """Return geometric means of the ratios, and shares of all forecasts."""
    forecasts = np.array([row["forecasts"] for row in rows])
    summary: Row = {"trace": "all", "window_s": None, "horizon_s": None, "forecasts": int(forecasts.sum())}
    for column in list(rows[0])[4:]:
        values = np.array([row[column] for row in rows])
        share = column.startswith(("coverage", "windows_below"))
        summary[column] = float(forecasts @ values / forecasts.sum() if share else np.exp(np.log(values).mean()))
    return summary


def fleetwright(demand: Demand) -> dict[float, Floats]:
    state = ForecastState(window_s=demand.window_s)
    found: dict[float, list[tuple[float, ...]]] = {horizon_s: [] for horizon_s in demand.horizons_s}
    for i, rate in enumerate(demand.rates.tolist()):
        state = update(state, rate=rate, at_s=START_S + (i + 1) * demand.window_s)
        for horizon_s, values in found.items():
            values.append(forecast(state, horizon_s=horizon_s, quantiles=QUANTILES))
    return {horizon_s: np.array(values) for horizon_s, values in found.items()}


def _with_errors(locations: Callable[[Demand, int], Floats]) -> Method:
    """A forecast by location, and quantiles of its last errors."""

    def forecasts(demand: Demand) -> dict[float, Floats]:
        return dict(_each_horizon(demand, locations))

    return forecasts


def _each_horizon(demand: Demand, locations: Callable[[Demand, int], Floats]) -> Iterator[tuple[float, Floats]]:
    for horizon_s in demand.horizons_s:
        ahead = round(horizon_s / demand.window_s)
        location = locations(demand, ahead)
        errors = highest(demand.rates, ahead=ahead) - location[:-ahead]
        found = np.empty((len(location), len(QUANTILES)))
        for i in range(len(location)):
            known = errors[max(0, i - ahead + 1 - ERRORS) : max(0, i - ahead + 1)]
            mean = demand.rates[max(0, i + 1 - ERRORS) : i + 1].mean()
            sample = np.sort(np.concatenate([known, mean * FIRST_ERRORS]))
            ranks = np.ceil(np.array(QUANTILES) * (len(sample) + 1)).astype(np.int64)
            found[i] = location[i] + sample[np.minimum(ranks, len(sample)) - 1]
        yield horizon_s, np.maximum(found, 0.0)


def _last_value(demand: Demand, _: int) -> Floats:
    return demand.rates


def _seasonal_naive(demand: Demand, ahead: int) -> Floats:
    day, rates = round(86_400 / demand.window_s), demand.rates.copy()
    if len(rates) > day:
        rates[day:] = highest(demand.rates, ahead=ahead)[: len(rates) - day]
    return rates


def _holt_winters(demand: Demand, ahead: int) -> Floats:
    day, rates = round(86_400 / demand.window_s), demand.rates.tolist()
    season, level, trend = [0.0] * (day + ahead), rates[0], 0.0
    rise = sum(DAMPING**k for k in range(1, ahead + 1))
    found = []
    for i, rate in enumerate(rates):
        at, before = i % day, level
        level = LEVEL * (rate - season[at]) + (1 - LEVEL) * (level + DAMPING * trend)
        trend = TREND * (level - before) + (1 - TREND) * DAMPING * trend
        if len(rates) > day:
            season[at] = SEASON * (rate - level) + (1 - SEASON) * season[at]
            if at < ahead:
                season[day + at] = season[at]  # the day begins again
        found.append(level + max(rise * trend, DAMPING * trend) + max(season[at + 1 : at + 1 + ahead]))
    return np.array(found)


def _recent_quantile(demand: Demand) -> dict[float, Floats]:
    """The same value at each quantile."""
    rates, found = demand.rates, []
    for i in range(len(rates)):
        recent = np.sort(rates[max(0, i - 23) : i + 1])
        found.append(max(1.05 * recent[max(0, int(np.ceil(0.9 * len(recent))) - 1)], rates[i]))
    return {horizon_s: np.repeat(np.array(found)[:, None], len(QUANTILES), axis=1) for horizon_s in demand.horizons_s}


METHODS: dict[str, Method] = {
    "last_value": _with_errors(_last_value),
    "seasonal_naive": _with_errors(_seasonal_naive),
    "holt_winters": _with_errors(_holt_winters),
    "recent_quantile": _recent_quantile,
    "fleetwright": fleetwright,
}
