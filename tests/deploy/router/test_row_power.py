"""What holds between two words of the guard, and when there is none."""

from math import inf

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from deploy.router.row_power import LOST_HIGH_LIMIT, LOST_LOW_LIMIT, GuardReading, RowPower, reading_in
from deploy.router.settings import PowerSource
from tests.helm.power_row import guard_page

SAID = PowerSource(url="http://guard:9402", row="row-a", step_w=100.0, every_s=1.0, patience_s=10.0)
READING = GuardReading(row_w=8000.0, age_s=2.0, budget_w=10_000.0, low_limit_w=9800.0, high_limit_w=9900.0)


def watch(reading: GuardReading | None = READING, *, now_s: float = 100.0, in_flight: int = 10) -> RowPower:
    """Heard now, after so many were in flight all the time."""
    found = RowPower(SAID)
    for second in range(10):
        found.count(in_flight, now_s=now_s - 10.0 + second)
    found.update(reading, now_s=now_s)
    return found


def test_a_real_guards_page_is_read() -> None:
    reading = reading_in(guard_page().decode(), row="row-a")
    assert reading is not None
    assert 0.0 < reading.row_w < inf
    assert reading.budget_w == 9000.0
    assert reading.low_limit_w <= reading.high_limit_w
    assert reading_in(guard_page().decode(), row="another") is None


def test_a_page_without_a_reading_says_nothing() -> None:
    assert reading_in(generate_latest(CollectorRegistry()).decode(), row="row-a") is None
    page = 'fleetwright_row_power_watts{row="r"} NaN\nfleetwright_row_power_reading_age_seconds{row="r"} 1\n'
    assert reading_in(page, row="r") is None


def test_what_was_started_since_the_reading_counts() -> None:
    found = watch()
    assert found.watts(10, now_s=100.0, routers=1).row_w == 8000.0
    assert found.watts(14, now_s=100.0, routers=1).row_w == 8400.0
    assert found.watts(9, now_s=100.0, routers=1).row_w == 7900.0


def test_other_routers_start_as_many() -> None:
    found = watch().watts(12, now_s=100.0, routers=3)
    assert (found.row_w, found.step_w) == (8600.0, 300.0)


def test_the_count_is_that_of_the_moment_of_the_reading() -> None:
    found = RowPower(SAID)
    for second in range(5):
        found.count(second, now_s=float(second))
    found.update(READING, now_s=4.0)  # read at 2
    assert found.watts(4, now_s=4.0, routers=1).row_w == 8200.0


@pytest.mark.parametrize(("late_s", "low_w", "high_w"), [(2.0, 9800.0, 9900.0), (2.1, 9000.0, 9500.0)])
def test_without_a_word_for_two_periods_prompts_are_held_as_by_a_blind_guard(
    late_s: float, low_w: float, high_w: float
) -> None:
    found = watch().watts(10, now_s=100.0 + late_s, routers=1)
    assert (found.low_limit_w, found.high_limit_w) == (low_w, high_w)
    assert (LOST_LOW_LIMIT, LOST_HIGH_LIMIT) == (0.90, 0.95)


def test_a_guard_that_never_spoke_holds_back_low_prompts() -> None:
    found = watch(None).watts(10, now_s=100.0, routers=1)
    assert (found.low_limit_w, found.high_limit_w) == (-inf, inf)


def test_an_empty_word_does_not_replace_the_last() -> None:
    found = watch()
    found.update(None, now_s=101.0)
    assert found.age_s(now_s=101.0) == 3.0
    assert RowPower(SAID).age_s(now_s=0.0) == inf


def test_what_was_started_since_counts_however_long_the_guard_is_silent() -> None:
    found = watch(in_flight=10)
    for second in range(600):
        found.count(10 + second // 100, now_s=101.0 + second)
    assert found.watts(15, now_s=701.0, routers=1).row_w == 8500.0


def test_a_reading_older_than_all_that_is_known_counts_with_the_fewest_in_flight() -> None:
    found = RowPower(SAID)
    for second, count in enumerate((9, 4, 7)):
        found.count(count, now_s=100.0 + second)
    found.update(READING, now_s=101.0)  # read at 99
    assert found.watts(7, now_s=102.0, routers=1).row_w == 8300.0


def test_other_settings_of_the_same_row_keep_what_was_heard() -> None:
    steeper = SAID.model_copy(update={"step_w": 200.0})
    assert watch().with_source(steeper).watts(12, now_s=100.0, routers=1).row_w == 8400.0
    another = SAID.model_copy(update={"row": "row-b"})
    assert watch().with_source(another).watts(12, now_s=100.0, routers=1).low_limit_w == -inf
