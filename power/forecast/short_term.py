"""The short-term forecast of one row's power: a value that each reading replaces by another.

`rise_w` is the margin of a controller: how far the next readings may exceed the last one.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import isfinite
from typing import Any, Self

import numpy as np

from fleet.documents import RuleError, Violation
from power.arrays import Floats
from power.forecast.state_layout import (
    AT_S,
    FIRST_FACTORS,
    HEAD,
    LAGS,
    PRIOR_W,
    QUANTILES,
    READINGS,
    STEP_S,
    TARGETS,
    UNIT_W,
    offsets,
)

MAX_DRIVERS = 8


@dataclass(frozen=True, slots=True, eq=False)
class RowForecast:
    """The forecast after a number of readings."""

    drivers: int
    now: int  # the offset of the quantiles in the table
    table: Floats

    @classmethod
    def start(cls, *, step_s: float = 2.0, drivers: int = 0, prior_rise_w: float | None = None) -> Self:
        """Return the forecast before any reading; `prior_rise_w`, or a share of the row, is its last quantile."""
        RuleError.raise_for(_violations(step_s, drivers, prior_rise_w))
        at = offsets(drivers)
        table = np.zeros(at.size)
        table[STEP_S] = step_s
        table[PRIOR_W] = prior_rise_w or 0.0
        table[at.factors : at.now] = FIRST_FACTORS * TARGETS
        table.flags.writeable = False
        return cls(drivers, at.now, table)

    @property
    def reading_count(self) -> int:
        """Return the number of readings so far."""
        return int(self.table[READINGS])

    def after(self, *, at_s: float, row_w: float, drivers_w: Sequence[float] = ()) -> Self:
        """Return the forecast after one more reading, with the drivers in watts; their number is fixed."""
        table = self.table.copy()
        reading_count = table[READINGS]
        if len(drivers_w) != self.drivers or not all(map(isfinite, drivers_w)):
            given = ", ".join(map(str, drivers_w)) or "none"
            raise RuleError([(("drivers_w",), f"must be {self.drivers} numbers, got {given}")])
        if not (isfinite(row_w) and row_w >= 0):
            raise RuleError([(("row_w",), f"must be a number from 0, got {row_w:g}")])
        if not isfinite(at_s) or (reading_count and at_s <= table[AT_S]):
            raise RuleError([(("at_s",), f"must be later than the last reading ({table[AT_S]:g}), got {at_s:g}")])
        if not reading_count:
            table[UNIT_W] = max(row_w, 1.0)
        at = HEAD
        for watts in drivers_w:
            table[at] = watts
            at += 1
        _step()(table, self.drivers, at_s, row_w)
        return type(self)(self.drivers, self.now, table)

    def rise_w(self, horizon_s: float, quantile: float) -> float:
        """Return how far the highest reading of the horizon exceeds the last one at a quantile; at least 0."""
        lower, upper, share = _places(horizon_s, quantile, self.table.item(STEP_S))
        item = self.table.item
        low = item(self.now + lower)
        return max(0.0, float((low + share * (item(self.now + upper) - low)) * item(UNIT_W)))


@lru_cache(maxsize=256)
def _places(horizon_s: float, quantile: float, step_s: float) -> tuple[int, int, float]:
    """Return the offset of the quantiles of the lag before this one, and the position between two lags."""
    if quantile not in QUANTILES:
        known = ", ".join(map(str, QUANTILES))
        raise RuleError([(("quantile",), f"must be one of {known}, got {quantile:g}")])
    lag, max_s = horizon_s / step_s, LAGS[-1] * step_s
    if not 0 < lag <= LAGS[-1] + 1e-9:
        raise RuleError([(("horizon_s",), f"must be above 0 and at most {max_s:g}, got {horizon_s:g}")])
    upper = min(bisect_left(LAGS, lag - 1e-9), len(LAGS) - 1)
    lower = max(0, upper - 1)
    share = 1.0 if lower == upper else (lag - LAGS[lower]) / (LAGS[upper] - LAGS[lower])
    column, wide = QUANTILES.index(quantile), len(QUANTILES)
    return lower * wide + column, upper * wide + column, share


@cache
def _step() -> Callable[..., Any]:
    from power.forecast.online_regression import take  # noqa: PLC0415 - compiled when imported

    return take


def _violations(step_s: float, drivers: int, prior_rise_w: float | None) -> list[Violation]:
    violations: list[Violation] = []
    if not 0 < step_s <= 60:
        violations.append((("step_s",), f"must be above 0 and at most 60, got {step_s:g}"))
    if not 0 <= drivers <= MAX_DRIVERS:
        violations.append((("drivers",), f"must be 0 to {MAX_DRIVERS}, got {drivers}"))
    if prior_rise_w is not None and not (isfinite(prior_rise_w) and prior_rise_w > 0):
        violations.append((("prior_rise_w",), f"must be above 0, got {prior_rise_w:g}"))
    return violations
