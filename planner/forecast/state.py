"""What a forecast remembers of one rate: the last windows, a week in half hours, and corrections of its quantiles."""

from math import isfinite
from typing import Annotated, Self

from pydantic import Field, model_validator

from fleet.demand import Rate
from fleet.documents import Frozen, RuleError

MAX_WINDOWS = 240  # kept
MAX_RATE = 1e9
SLOT_S = 1800.0
DAY_SLOTS, WEEK_SLOTS = 48, 336
HORIZONS = (1, 2, 4, 8, 16, 32)  # windows; corrections of others are interpolated
QUANTILES = (0.5, 0.9, 0.95, 0.99)

Correction = Annotated[float, Field(ge=-1e6, le=1e6)]


class ForecastState(Frozen):
    """The history of one rate in windows of equal length; `ForecastState(window_s=60)` is the empty history."""

    window_s: float = Field(ge=1, le=SLOT_S)
    ended_at_s: float | None = Field(default=None, ge=0, le=1e11)  # end of the newest window, in Unix seconds
    observed: int = Field(default=0, ge=0)  # windows since the start, without missing ones
    rates: tuple[Rate | None, ...] = Field(default=(), max_length=MAX_WINDOWS)  # the newest last; None: missing
    week: tuple[Rate | None, ...] = Field(default=(None,) * WEEK_SLOTS, min_length=WEEK_SLOTS, max_length=WEEK_SLOTS)
    slot_sum: float = Field(default=0.0, ge=0)  # of the rates in the half hour that is not over yet
    slot_windows: int = Field(default=0, ge=0)
    corrections: tuple[tuple[Correction, ...], ...] = ((0.0,) * len(QUANTILES),) * len(HORIZONS)  # in spreads

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.ended_at_s is None) != (not self.rates) or (self.rates and self.rates[-1] is None):
            raise RuleError([(("rates",), "must end with the rate of the window that ends at `ended_at_s`")])
        if [len(row) for row in self.corrections] != [len(QUANTILES)] * len(HORIZONS):
            expected = f"{len(HORIZONS)} rows of {len(QUANTILES)} numbers"
            raise RuleError([(("corrections",), f"must be {expected}")])
        return self

    def with_window(self, *, rate: float, at_s: float) -> Self:
        """Return the state after one more window, with the same corrections."""
        missing = self._missing_before(rate, at_s)
        kept = float(f"{rate:.5g}")  # short in JSON
        slot, week, total, windows = _slot(at_s - self.window_s / 2), self.week, self.slot_sum, self.slot_windows
        if self.ended_at_s is not None and slot != (before := _slot(self.ended_at_s - self.window_s / 2)):
            mean = float(f"{total / windows:.4g}")
            week = (*week[:before], mean, *week[before + 1 :])
            total, windows = 0.0, 0
        return self.model_copy(
            update={
                "ended_at_s": at_s,
                "observed": self.observed + 1,
                "rates": (*self.rates, *(None,) * missing, kept)[-MAX_WINDOWS:],
                "week": week,
                "slot_sum": total + kept,
                "slot_windows": windows + 1,
            }
        )

    def _missing_before(self, rate: float, at_s: float) -> int:
        """Return how many windows are missing before this one; raise if the window cannot follow the newest."""
        if not (isfinite(rate) and 0 <= rate <= MAX_RATE):
            raise RuleError([(("rate",), f"must be from 0 to {MAX_RATE:g}, got {rate:g}")])
        if not 0 <= at_s <= 1e11:
            raise RuleError([(("at_s",), f"must be Unix seconds from 0 to 1e11, got {at_s:g}")])
        if self.ended_at_s is None:
            return 0
        windows = (at_s - self.ended_at_s) / self.window_s
        if windows <= 0.5:
            due_s = self.ended_at_s + self.window_s
            raise RuleError([(("at_s",), f"must be the end of a later window, near {due_s:.0f} s, got {at_s:.0f}")])
        return min(max(round(windows), 1) - 1, MAX_WINDOWS)


def _slot(at_s: float) -> int:
    """Return the half hour of the week; the week begins where Unix time does."""
    return int(at_s // SLOT_S) % WEEK_SLOTS
