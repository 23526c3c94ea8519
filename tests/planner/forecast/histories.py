"""Histories of one rate for tests of the forecast."""

from collections.abc import Iterable

from planner.forecast import ForecastState, update

MONDAY_S = 1_700_438_400.0  # a midnight, in Unix seconds


def after(rates: Iterable[float], *, window_s: float = 60.0, state: ForecastState | None = None) -> ForecastState:
    """Add windows one after another; the first history begins on a Monday at midnight."""
    state = state or ForecastState(window_s=window_s)
    for rate in rates:
        ended_s = MONDAY_S if state.ended_at_s is None else state.ended_at_s
        state = update(state, rate=rate, at_s=ended_s + state.window_s)
    return state
