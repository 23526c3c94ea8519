"""The power of a row between two polls of its guard, and while the guard is unreachable.  Pure; time is an argument.

    row_w(now) = reading_w + step_w (in_flight(now) - in_flight(reading))

A reading is some seconds old; the router knows its own starts and ends since.  Without a poll for two periods the row
is modelled from the last reading, with the limits of a guard without telemetry: 90 and 95 % of the budget.  Before the
first reading, low prompts wait for their patience and high ones start: guard and safe clocks hold the row's budget.
"""

from collections import deque
from dataclasses import dataclass
from math import inf, isfinite, isnan

from prometheus_client.parser import text_string_to_metric_families

from deploy.router.power_admission import PowerAdmission
from deploy.router.settings import PowerSource
from power.guard import GuardSettings

STALE_PERIODS = 2
KEPT_S = 60.0  # history of counts in flight; a reading is never older
LOST_LOW_LIMIT: float = GuardSettings.model_fields["telemetry_lost_low_limit"].default
LOST_HIGH_LIMIT: float = GuardSettings.model_fields["telemetry_lost_high_limit"].default


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReading:
    """The guard's metrics of a row."""

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
    word = [found.get(name + priority, inf) for name, priority in _FIELDS]
    row_w, age_s, budget_w, low_limit_w, high_limit_w = word
    if not isfinite(row_w) or not isfinite(age_s) or any(map(isnan, word)):
        return None
    return GuardReading(
        row_w=row_w, age_s=max(0.0, age_s), budget_w=budget_w, low_limit_w=low_limit_w, high_limit_w=high_limit_w
    )


class RowPower:
    """One row, as one router models it."""

    def __init__(self, said: PowerSource) -> None:
        self._said = said
        self._word: GuardReading | None = None
        self._heard_s = -inf
        self._in_flight_then = 0  # when the reading in use was taken
        self._counts: deque[tuple[float, int]] = deque()

    def under(self, said: PowerSource) -> "RowPower":
        """With other settings: the reading stays for the same row, and is dropped for another one."""
        if (said.url, said.row) != (self._said.url, self._said.row):
            return RowPower(said)
        self._said = said
        return self

    def count(self, in_flight: int, *, now_s: float) -> None:
        """Record the requests in flight."""
        self._counts.append((now_s, in_flight))
        while self._counts[0][0] < now_s - KEPT_S:
            self._counts.popleft()

    def update(self, word: GuardReading | None, *, now_s: float) -> None:
        """Take the guard's response; None where it has no reading."""
        if word is not None:
            self._word, self._heard_s = word, now_s
            self._in_flight_then = self._in_flight_at(now_s - word.age_s)

    def age_s(self, *, now_s: float) -> float:
        """The age of the reading."""
        return inf if self._word is None else now_s - self._heard_s + self._word.age_s

    def watts(self, in_flight: int, *, now_s: float, routers: int) -> PowerAdmission:
        """The limits now.  Other routers start as many prompts as this one, so each start counts for all."""
        if self._word is None:
            return PowerAdmission(
                row_w=0.0, step_w=0.0, low_limit_w=-inf, high_limit_w=inf, patience_s=self._said.patience_s
            )
        step_w = self._said.step_w * routers
        row_w = self._word.row_w + step_w * (in_flight - self._in_flight_then)
        low_w, high_w = self._word.low_limit_w, self._word.high_limit_w
        if now_s - self._heard_s > STALE_PERIODS * self._said.every_s:
            low_w = min(low_w, LOST_LOW_LIMIT * self._word.budget_w)
            high_w = min(high_w, LOST_HIGH_LIMIT * self._word.budget_w)
        return PowerAdmission(
            row_w=max(0.0, row_w),
            step_w=step_w,
            low_limit_w=low_w,
            high_limit_w=high_w,
            patience_s=self._said.patience_s,
        )

    def _in_flight_at(self, at_s: float) -> int:
        """The last count before that time, else the smallest known: a request that the reading may lack is added."""
        before = [count for when_s, count in self._counts if when_s <= at_s]
        return before[-1] if before else min((count for _when_s, count in self._counts), default=0)


_FIELDS = (
    ("fleetwright_row_power_watts", ""),
    ("fleetwright_row_power_reading_age_seconds", ""),
    ("fleetwright_row_power_budget_watts", ""),
    ("fleetwright_power_admission_limit_watts", "low"),
    ("fleetwright_power_admission_limit_watts", "high"),
)
_WANTED = frozenset(name for name, _ in _FIELDS)
