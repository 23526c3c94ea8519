"""Metered power: from CSV text to readings, and from readings to even steps.

The header names a column of times (`time`, `time_s`, `at_s` or `timestamp`: seconds, or ISO 8601) and one of watts
(`watts`, `power_w`, `row_w`, `row_power_watts` or `value`).  Other columns are ignored.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np

from fleet.csv_columns import CsvTable
from fleet.documents import RuleError
from fleet.errors import DocumentError, Problem
from power.arrays import Bools, Floats

TIMES = ("time", "time_s", "at_s", "timestamp")
WATTS = ("watts", "power_w", "row_w", "row_power_watts", "value")
MAX_READINGS = 20_000_000
MAX_WATTS = 1e9
DAY_S = 86_400.0

Of = Literal["mean", "peak"]


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """Power readings in watts; times rise and count from the first reading."""

    at_s: Floats
    watts: Floats
    start: datetime | None = None  # of the first reading, in the zone it was written in

    def __post_init__(self) -> None:
        RuleError.raise_for(self._violations())
        for values in (self.at_s, self.watts):
            values.flags.writeable = False

    @property
    def step_s(self) -> float:
        return float(np.median(np.diff(self.at_s)))

    def steps(self, step_s: float, *, of: Of = "mean") -> "Steps":
        """Return means or peaks of equal steps; NaN for a step without a reading."""
        if not 0 < step_s <= DAY_S / 2 or DAY_S % step_s > 1e-6:
            allowed = "a part of a day, at most half of it"
            raise RuleError([(("step_s",), f"must be {allowed}, got {step_s:g}")])
        first_s = 0.0 if self.start is None else _second_of_day(self.start) % step_s
        slot = ((self.at_s + first_s) / step_s).astype(np.int64)
        count = int(slot[-1]) + 1
        if of == "peak":
            found = np.full(count, -np.inf)
            np.maximum.at(found, slot, self.watts)
            values = np.where(np.isfinite(found), found, np.nan)
        else:
            held = np.bincount(slot, minlength=count)
            sums = np.bincount(slot, weights=self.watts, minlength=count)
            values = np.where(held > 0, sums / np.maximum(held, 1), np.nan)
        begun_s = 0.0 if self.start is None else _second_of_day(self.start) - first_s
        weekday = None if self.start is None else self.start.weekday()
        return Steps(step_s=step_s, watts=values, second_of_day=begun_s, weekday=weekday)

    def _violations(self) -> Iterable[tuple[tuple[str | int, ...], str]]:
        if len(self.at_s) != len(self.watts) or len(self.at_s) < 2:
            yield ("watts",), f"must be at least two readings, each with its time, got {len(self.watts)}"
        elif np.any(np.diff(self.at_s) <= 0):
            yield ("at_s",), "must rise"
        elif not np.all(_fits(self.watts)):
            yield ("watts",), f"must be from 0 to {MAX_WATTS:g}"


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Watts of even steps, where they begin within a day, and on which day of the week (0 is Monday), if known."""

    step_s: float
    watts: Floats  # NaN where unknown
    second_of_day: float = 0.0
    weekday: int | None = None

    @property
    def per_day(self) -> int:
        return round(DAY_S / self.step_s)


def read_power(text: str, *, name: str) -> Readings:
    """Read a CSV text and sort it by time.  Errors name the text `name`."""
    table = CsvTable.read(text, name=name, max_rows=MAX_READINGS)
    time, watts = _column(table, TIMES), _column(table, WATTS)
    if not 2 <= len(table.lines) <= MAX_READINGS:
        expected = f"expected 2 to {MAX_READINGS:,}"
        raise DocumentError(name=name, problems=[Problem("", f"has {len(table.lines):,} readings, {expected}")])
    table.require_cells([time, watts])
    values = table.numbers(watts, _fits, expected=f"a number from 0 to {MAX_WATTS:g}")
    times, start = table.times(time, unit="seconds")
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    if twice := np.flatnonzero(np.diff(times) == 0).tolist():
        line = table.lines[int(order[twice[0] + 1])][0]
        problem = Problem(table.header[time], "is the time of another reading too", line)
        raise DocumentError(name=name, problems=[problem])
    return Readings(at_s=times - times[0], watts=values, start=start)


def _fits(watts: Floats) -> Bools:
    return np.logical_and(watts >= 0, watts <= MAX_WATTS)


def _column(table: CsvTable, names: Sequence[str]) -> int:
    for each in names:
        if each in table.header:
            return table.header.index(each)
    shown, expected = ",".join(table.header)[:200], " or ".join(names)
    problem = Problem("", f"has the columns {shown!r}, expected one named {expected}", 1)
    raise DocumentError(name=table.name, problems=[problem])


def _second_of_day(moment: datetime) -> float:
    return moment.hour * 3600.0 + moment.minute * 60.0 + moment.second + moment.microsecond / 1e6
