"""The power of a row between two polls of its guard, and while the guard is unreachable.  Pure; time is an argument.

    row_w(now) = reading_w + step_w (in_flight(now) - in_flight(reading))

A reading is some seconds old; the router counts its own starts and ends since.  Without a poll for two periods the row
is modelled from the last reading, with the limits of a guard without telemetry: 90 and 95 % of the budget.  Before the
first reading, low prompts wait for their patience and high ones start: guard and safe clocks hold the row's budget.
"""

from collections import deque
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan

from prometheus_client.parser import text_string_to_metric_families

from deploy.router.settings import PowerSource
from power.admission import LOW_PATIENCE_S, admits, limit_w
from power.controls import Priority
from power.guard import GuardSettings

STALE_PERIODS = 2
KEPT_S = 60.0  # history of counts in flight; a reading is never older
LOST_LOW_LIMIT: float = GuardSettings.model_fields["telemetry_lost_low_limit"].default
LOST_HIGH_LIMIT: float = GuardSettings.model_fields["telemetry_lost_high_limit"].default
_FIELDS = (
    ("fleetwright_row_power_watts", ""),
    ("fleetwright_row_power_reading_age_seconds", ""),
    ("fleetwright_row_power_budget_watts", ""),
    ("fleetwright_power_admission_limit_watts", "low"),
    ("fleetwright_power_admission_limit_watts", "high"),
)
_WANTED = frozenset(name for name, _ in _FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerAdmission:
    """The modelled power of the row, and the limits of prompts."""

    row_w: float
    step_w: float  # added by one prompt
    low_limit_w: float
    high_limit_w: float
    patience_s: float = LOW_PATIENCE_S

    def allows(self, priority: Priority, *, waited_s: float) -> bool:
        max_w = limit_w(priority, waited_s, self.patience_s, self.low_limit_w, self.high_limit_w)
        return admits(self.row_w, self.step_w, max_w)

    def with_one_more(self) -> "PowerAdmission":
        return replace(self, row_w=self.row_w + self.step_w)


NO_LIMIT = PowerAdmission(row_w=0.0, step_w=0.0, low_limit_w=inf, high_limit_w=inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReading:
    row_w: float
    age_s: float  # of the reading
    budget_w: float
    low_limit_w: float
    high_limit_w: float


def reading_in(page: str, *, row: str) -> GuardReading | None:
    """Parse the guard's metrics; None where they have no reading of this row."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.labels.get("row") == row and sample.name in _WANTED:
                found[sample.name + sample.labels.get("priority", "")] = sample.value
    reading = [found.get(name + priority, inf) for name, priority in _FIELDS]
    row_w, age_s, budget_w, low_limit_w, high_limit_w = reading
    if not isfinite(row_w) or not isfinite(age_s) or any(map(isnan, reading)):
        return None
    return GuardReading(
        row_w=row_w, age_s=max(0.0, age_s), budget_w=budget_w, low_limit_w=low_limit_w, high_limit_w=high_limit_w
    )


class RowPower:
    def __init__(self, source: PowerSource) -> None:
        self._source = source
        self._reading: GuardReading | None = None
        self._read_s = -inf
        self._in_flight_then = 0  # when the reading in use was taken
        self._counts: deque[tuple[float, int]] = deque()

    def with_source(self, source: PowerSource) -> "RowPower":
        """Return the model with other settings: the reading stays for the same row, and is dropped for another one."""
        if (source.url, source.row) != (self._source.url, self._source.row):
            return RowPower(source)
        self._source = source
        return self

    def count(self, in_flight: int, *, now_s: float) -> None:
        self._counts.append((now_s, in_flight))
        while self._counts[0][0] < now_s - KEPT_S:
            self._counts.popleft()

    def update(self, reading: GuardReading | None, *, now_s: float) -> None:
        if reading is not None:
            self._reading, self._read_s = reading, now_s
            self._in_flight_then = self._in_flight_at(now_s - reading.age_s)

    def age_s(self, *, now_s: float) -> float:
        return inf if self._reading is None else now_s - self._read_s + self._reading.age_s

    def watts(self, in_flight: int, *, now_s: float, routers: int) -> PowerAdmission:
        """Return the limits now.  Other routers start as many prompts as this one, so each start counts for all."""
        if self._reading is None:
            return PowerAdmission(
                row_w=0.0, step_w=0.0, low_limit_w=-inf, high_limit_w=inf, patience_s=self._source.patience_s
            )
        step_w = self._source.step_w * routers
        row_w = self._reading.row_w + step_w * (in_flight - self._in_flight_then)
        low_w, high_w = self._reading.low_limit_w, self._reading.high_limit_w
        if now_s - self._read_s > STALE_PERIODS * self._source.every_s:
            low_w = min(low_w, LOST_LOW_LIMIT * self._reading.budget_w)
            high_w = min(high_w, LOST_HIGH_LIMIT * self._reading.budget_w)
        return PowerAdmission(
            row_w=max(0.0, row_w),
            step_w=step_w,
            low_limit_w=low_w,
            high_limit_w=high_w,
            patience_s=self._source.patience_s,
        )

    def _in_flight_at(self, at_s: float) -> int:
        """Return the last count before that time, else the smallest, which adds requests that the reading may lack."""
        before = [count for when_s, count in self._counts if when_s <= at_s]
        return before[-1] if before else min((count for _when_s, count in self._counts), default=0)
