"""Metered power: from CSV text to readings, and from readings to even steps.

The header names a column of times (`time`, `time_s`, `at_s` or `timestamp`: seconds, or ISO 8601) and one of watts
(`watts`, `power_w`, `row_w`, `row_power_watts` or `value`).  Other columns are ignored.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Literal

import numpy as np

from fleet.documents import MAX_PROBLEMS, RuleError
from fleet.errors import DocumentError, Problem
from power.arrays import Floats

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
        """Return the usual time between two readings."""
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
        elif not np.all((self.watts >= 0) & (self.watts <= MAX_WATTS)):
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
    rows = csv.reader(io.StringIO(text))
    header = [cell.strip().lstrip("\ufeff").casefold() for cell in next(rows, [])]
    time, watts = _column(header, TIMES, name), _column(header, WATTS, name)
    lines = [(rows.line_num, row) for row in islice(rows, MAX_READINGS + 1) if row]
    if not 2 <= len(lines) <= MAX_READINGS:
        expected = f"expected 2 to {MAX_READINGS:,}"
        raise DocumentError(name=name, problems=[Problem("", f"has {len(lines):,} readings, {expected}")])
    _refuse(
        name,
        (
            Problem("", f"has {len(row)} columns, expected at least {max(time, watts) + 1}", line)
            for line, row in lines
            if len(row) <= max(time, watts)
        ),
    )
    values = _watts(lines, watts, header[watts], name)
    times, start = _times(lines, time, header[time], name)
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    if twice := np.flatnonzero(np.diff(times) == 0).tolist():
        line = lines[int(order[twice[0] + 1])][0]
        raise DocumentError(name=name, problems=[Problem(header[time], "is the time of another reading too", line)])
    return Readings(at_s=times - times[0], watts=values, start=start)


def _watts(lines: Sequence[tuple[int, Sequence[str]]], column: int, heading: str, name: str) -> Floats:
    values = _numbers([row[column] for _, row in lines])
    if values is not None and np.all((values >= 0) & (values <= MAX_WATTS)):
        return values
    expected = f"expected a number from 0 to {MAX_WATTS:g}"
    _refuse(
        name,
        (
            Problem(heading, f"{expected}, got {row[column]!r}", line)
            for line, row in lines
            if (one := _numbers([row[column]])) is None or not 0 <= one[0] <= MAX_WATTS
        ),
    )
    raise AssertionError("a column that cannot be read has a cell that cannot")


def _times(
    lines: Sequence[tuple[int, Sequence[str]]], column: int, heading: str, name: str
) -> tuple[Floats, datetime | None]:
    cells = [row[column].strip() for _, row in lines]
    seconds = _numbers(cells)
    if seconds is not None and np.isfinite(seconds).all():
        return seconds, None
    moments = [_moment(cell) for cell in cells]
    _refuse(
        name,
        (
            Problem(heading, f"expected seconds or a time in ISO 8601, got {cell!r}", line)
            for (line, _), cell, moment in zip(lines, cells, moments, strict=True)
            if moment is None
        ),
    )
    known = [moment for moment in moments if moment is not None]
    first = min(known)
    return np.array([(moment - first).total_seconds() for moment in known]), first


def _column(header: Sequence[str], names: Sequence[str], name: str) -> int:
    for each in names:
        if each in header:
            return header.index(each)
    shown, expected = ",".join(header)[:200], " or ".join(names)
    raise DocumentError(
        name=name, problems=[Problem("", f"has the columns {shown!r}, expected one named {expected}", 1)]
    )


def _refuse(name: str, problems: Iterable[Problem]) -> None:
    if found := list(islice(problems, MAX_PROBLEMS)):
        raise DocumentError(name=name, problems=found)


def _numbers(cells: Sequence[str]) -> Floats | None:
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return None


def _moment(text: str) -> datetime | None:
    """Parse a time in ISO 8601; a time without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _second_of_day(moment: datetime) -> float:
    return moment.hour * 3600.0 + moment.minute * 60.0 + moment.second + moment.microsecond / 1e6
