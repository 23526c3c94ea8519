"""What a forecast remembers of one rate: the last windows.  A frozen value that JSON can hold."""

from math import isfinite
from typing import Self

from pydantic import Field, model_validator

from fleet.demand import Rate
from fleet.documents import Frozen, RuleError

MAX_WINDOWS = 240  # kept
DAY_S = 86_400.0


class ForecastState(Frozen):
    """The history of one rate in windows of equal length; `ForecastState(window_s=60)` is the empty history."""

    window_s: float = Field(ge=1, le=DAY_S / 24)
    ended_at_s: float | None = None  # end of the newest window, in Unix seconds
    observed: int = Field(default=0, ge=0)  # windows since the start, without missing ones
    rates: tuple[Rate | None, ...] = Field(default=(), max_length=MAX_WINDOWS)  # the newest last; None: missing

    @model_validator(mode="after")
    def _newest(self) -> Self:
        if (self.ended_at_s is None) != (not self.rates) or (self.rates and self.rates[-1] is None):
            raise RuleError([(("rates",), "must end with the rate of the window that ends at `ended_at_s`")])
        return self


def update(state: ForecastState, *, rate: float, at_s: float) -> ForecastState:
    """Add the mean rate of the window that ends at `at_s` (Unix seconds).  Windows in between count as missing."""
    if not (isfinite(rate) and 0 <= rate <= 1e9):
        raise RuleError([(("rate",), f"must be from 0 to 1e9, got {rate:g}")])
    missing = 0
    if state.ended_at_s is not None:
        windows = (at_s - state.ended_at_s) / state.window_s
        if not windows > 0.5:
            earliest_s = state.ended_at_s + state.window_s
            raise RuleError(
                [(("at_s",), f"must be near {earliest_s:.0f} or later, the end of the next window, got {at_s:.0f}")]
            )
        missing = min(round(windows) - 1, MAX_WINDOWS)
    rates = (*state.rates, *(None,) * missing, rate)[-MAX_WINDOWS:]
    return ForecastState(window_s=state.window_s, ended_at_s=at_s, observed=state.observed + 1, rates=rates)
