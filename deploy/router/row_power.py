"""The row's watts between two words of its guard, and when the guard says nothing.  Pure; time is passed in.

    row_w(now) = reading_w + step_w (in_flight(now) - in_flight(reading))

A reading is some seconds old; what this router has started and finished since is known.  Without a word for two
periods the row is modelled on from the last one, and prompts are held to what a guard that sees nothing holds them to,
90 and 95 % of the budget.  As long as the guard was never heard low prompts wait out their patience and high ones go:
nothing is known, and it is the guard and the servers' own safe clocks that keep the row.
"""

from collections import deque
from dataclasses import dataclass
from math import inf, isfinite, isnan

from prometheus_client.parser import text_string_to_metric_families

from deploy.router.power_admission import Watts
from deploy.router.settings import WattsFrom
from power.guard import GuardSettings

STALE_PERIODS = 2
KEPT_S = 60.0  # of how many were in flight, until the next word: its reading is never as old
BLIND_LOW_HOLD: float = GuardSettings.model_fields["telemetry_lost_low_limit"].default
BLIND_HIGH_HOLD: float = GuardSettings.model_fields["telemetry_lost_high_limit"].default


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardWord:
    """What the guard's page says of a row."""

    row_w: float
    age_s: float  # of the reading
    budget_w: float
    low_limit_w: float
    high_limit_w: float


def word_in(page: str, *, row: str) -> GuardWord | None:
    """From the guard's metrics; None where it has no reading of this row."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.labels.get("row") == row and sample.name in _WANTED:
                found[sample.name + sample.labels.get("priority", "")] = sample.value
    word = [found.get(name + priority, inf) for name, priority in _FIELDS]
    row_w, age_s, budget_w, low_limit_w, high_limit_w = word
    if not isfinite(row_w) or not isfinite(age_s) or any(map(isnan, word)):
        return None
    return GuardWord(
        row_w=row_w, age_s=max(0.0, age_s), budget_w=budget_w, low_limit_w=low_limit_w, high_limit_w=high_limit_w
    )


class RowWatch:
    """One row as one router sees it."""

    def __init__(self, said: WattsFrom) -> None:
        self._said = said
        self._word: GuardWord | None = None
        self._heard_s = -inf
        self._in_flight_then = 0  # when the reading in use was taken
        self._counts: deque[tuple[float, int]] = deque()

    def under(self, said: WattsFrom) -> "RowWatch":
        """With other settings: what is known of the same row is known still, of another row nothing."""
        if (said.url, said.row) != (self._said.url, self._said.row):
            return RowWatch(said)
        self._said = said
        return self

    def count(self, in_flight: int, *, now_s: float) -> None:
        """So many are in flight now."""
        self._counts.append((now_s, in_flight))
        while self._counts[0][0] < now_s - KEPT_S:
            self._counts.popleft()

    def hear(self, word: GuardWord | None, *, now_s: float) -> None:
        """The guard answered; without a reading it is as if it had not."""
        if word is not None:
            self._word, self._heard_s = word, now_s
            self._in_flight_then = self._in_flight_at(now_s - word.age_s)

    def age_s(self, *, now_s: float) -> float:
        """Of the reading."""
        return inf if self._word is None else now_s - self._heard_s + self._word.age_s

    def watts(self, in_flight: int, *, now_s: float, routers: int) -> Watts:
        """What holds now.  The other routers do meanwhile what this one does: its starts count for all of them."""
        if self._word is None:
            return Watts(row_w=0.0, step_w=0.0, low_limit_w=-inf, high_limit_w=inf, patience_s=self._said.patience_s)
        step_w = self._said.step_w * routers
        row_w = self._word.row_w + step_w * (in_flight - self._in_flight_then)
        low_w, high_w = self._word.low_limit_w, self._word.high_limit_w
        if now_s - self._heard_s > STALE_PERIODS * self._said.every_s:
            low_w = min(low_w, BLIND_LOW_HOLD * self._word.budget_w)
            high_w = min(high_w, BLIND_HIGH_HOLD * self._word.budget_w)
        return Watts(
            row_w=max(0.0, row_w),
            step_w=step_w,
            low_limit_w=low_w,
            high_limit_w=high_w,
            patience_s=self._said.patience_s,
        )

    def _in_flight_at(self, at_s: float) -> int:
        """The last count before that, else the fewest known: what may be in the reading or not is counted on top."""
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
