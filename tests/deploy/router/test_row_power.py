"""Power admission between two reports of the guard, and without a report."""

from math import inf

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from deploy.router.row_power import LOST_HIGH_LIMIT, LOST_LOW_LIMIT, GuardReading, RowPower, reading_in
from deploy.router.settings import PowerSource
from tests.helm.power_row import guard_page

SOURCE = PowerSource(url="http://guard:9402", row="row-a", step_w=100.0, every_s=1.0, patience_s=10.0)
READING = GuardReading(row_w=8000.0, age_s=2.0, budget_w=10_000.0, low_limit_w=9800.0, high_limit_w=9900.0)


def row_power(reading: GuardReading | None = READING, *, now_s: float = 100.0, in_flight: int = 10) -> RowPower:
    """Row power with a reading of now, after a constant number of requests in flight."""
    found = RowPower(SOURCE)
    for second in range(10):
        found.count(in_flight, now_s=now_s - 10.0 + second)
    found.update(reading, now_s=now_s)
    return found


def test_the_metrics_of_a_real_guard_are_parsed() -> None:
    reading = reading_in(guard_page().decode(), row="row-a")
    assert reading is not None
    assert 0.0 < reading.row_w < inf
    assert reading.budget_w == 9000.0
    assert reading.low_limit_w <= reading.high_limit_w
    assert reading_in(guard_page().decode(), row="another") is None


def test_metrics_without_a_reading_give_none() -> None:
    assert reading_in(generate_latest(CollectorRegistry()).decode(), row="row-a") is None
    page = 'fleetwright_row_power_watts{row="r"} NaN\nfleetwright_row_power_reading_age_seconds{row="r"} 1\n'
    assert reading_in(page, row="r") is None


def test_requests_started_since_the_reading_are_added() -> None:
    found = row_power()
    assert found.watts(10, now_s=100.0, routers=1).row_w == 8000.0
    assert found.watts(14, now_s=100.0, routers=1).row_w == 8400.0
    assert found.watts(9, now_s=100.0, routers=1).row_w == 7900.0


def test_other_routers_are_assumed_to_start_as_many_requests() -> None:
    found = row_power().watts(12, now_s=100.0, routers=3)
    assert (found.row_w, found.step_w) == (8600.0, 300.0)


def test_the_baseline_is_the_count_at_the_time_of_the_reading() -> None:
    found = RowPower(SOURCE)
    for second in range(5):
        found.count(second, now_s=float(second))
    found.update(READING, now_s=4.0)  # read at 2
    assert found.watts(4, now_s=4.0, routers=1).row_w == 8200.0


@pytest.mark.parametrize(("late_s", "low_w", "high_w"), [(2.0, 9800.0, 9900.0), (2.1, 9000.0, 9500.0)])
def test_after_two_periods_without_a_report_the_telemetry_lost_limits_apply(
    late_s: float, low_w: float, high_w: float
) -> None:
    found = row_power().watts(10, now_s=100.0 + late_s, routers=1)
    assert (found.low_limit_w, found.high_limit_w) == (low_w, high_w)
    assert (LOST_LOW_LIMIT, LOST_HIGH_LIMIT) == (0.90, 0.95)


def test_a_guard_that_never_reported_holds_back_low_priority_prompts() -> None:
    found = row_power(None).watts(10, now_s=100.0, routers=1)
    assert (found.low_limit_w, found.high_limit_w) == (-inf, inf)


def test_a_missing_reading_does_not_replace_the_last_one() -> None:
    found = row_power()
    found.update(None, now_s=101.0)
    assert found.age_s(now_s=101.0) == 3.0
    assert RowPower(SOURCE).age_s(now_s=0.0) == inf


def test_started_requests_are_added_for_any_length_of_silence() -> None:
    found = row_power(in_flight=10)
    for second in range(600):
        found.count(10 + second // 100, now_s=101.0 + second)
    assert found.watts(15, now_s=701.0, routers=1).row_w == 8500.0


def test_a_reading_older_than_the_history_uses_the_lowest_count() -> None:
    found = RowPower(SOURCE)
    for second, count in enumerate((9, 4, 7)):
        found.count(count, now_s=100.0 + second)
    found.update(READING, now_s=101.0)  # read at 99
    assert found.watts(7, now_s=102.0, routers=1).row_w == 8300.0


def test_changed_settings_of_the_same_row_keep_the_reading() -> None:
    steeper = SOURCE.model_copy(update={"step_w": 200.0})
    assert row_power().with_source(steeper).watts(12, now_s=100.0, routers=1).row_w == 8400.0
    another = SOURCE.model_copy(update={"row": "row-b"})
    assert row_power().with_source(another).watts(12, now_s=100.0, routers=1).low_limit_w == -inf
