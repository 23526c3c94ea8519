"""Quantiles of the highest rate of the next windows: the newest mean times quantiles of past ratios."""

from collections.abc import Sequence
from math import ceil

from fleet.documents import RuleError
from planner.forecast.state import ForecastState

MAX_HORIZON_WINDOWS = 60
FIRST_RATIOS = (0.7, 1.0, 1.4, 2.0)  # of the highest rate to the newest, before errors are known: quantiles 0 to 1


def forecast(state: ForecastState, *, horizon_s: float, quantiles: Sequence[float]) -> tuple[float, ...]:
    """Return quantiles of the highest window rate within `horizon_s` after the newest window."""
    ahead = horizon_windows(state, horizon_s)
    for quantile in quantiles:
        if not 0 < quantile < 1:
            raise RuleError([(("quantiles",), f"must lie between 0 and 1, got {quantile:g}")])
    if not state.rates:
        raise RuleError([(("state",), "has no window yet, expected at least one")])
    return tuple(_level(state) * _ratio(_ratios(state, ahead), quantile) for quantile in quantiles)


def horizon_windows(state: ForecastState, horizon_s: float) -> int:
    longest_s = MAX_HORIZON_WINDOWS * state.window_s
    if not 0 < horizon_s <= longest_s:
        raise RuleError([(("horizon_s",), f"must be above 0 and at most {longest_s:g}, got {horizon_s:g}")])
    return max(1, ceil(horizon_s / state.window_s - 1e-9))


def _level(state: ForecastState) -> float:
    return state.rates[-1] or 0.0


def _ratios(state: ForecastState, ahead: int) -> list[float]:
    ratios = list(FIRST_RATIOS)
    for i, rate in enumerate(state.rates[: len(state.rates) - ahead]):
        later = [each for each in state.rates[i + 1 : i + 1 + ahead] if each is not None]
        if rate and later:
            ratios.append(max(later) / rate)
    return sorted(ratios)


def _ratio(ratios: Sequence[float], quantile: float) -> float:
    return ratios[min(len(ratios), ceil(quantile * (len(ratios) + 1))) - 1]
