"""What a forecast remembers: order, gaps, limits and the round trip through JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from planner.forecast import ForecastState, update
from planner.forecast.state import DAY_SLOTS, MAX_WINDOWS
from tests.planner.forecast.histories import MONDAY_S, after

WEEK_S = 7 * 86_400


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_json_holds_the_whole_state(rates: list[float]) -> None:
    state = after(rates)
    assert ForecastState.model_validate_json(state.model_dump_json()) == state


def test_the_state_of_weeks_stays_within_five_kilobytes() -> None:
    state = after((1234.5678 + 0.01 * i for i in range(2 * WEEK_S // 1800)), window_s=1800)
    assert state.observed == 2 * WEEK_S // 1800
    assert len(state.rates) == MAX_WINDOWS
    assert None not in state.week
    assert len(state.model_dump_json()) < 5_000


def test_a_half_hour_is_the_mean_of_its_windows() -> None:
    state = after([10.0, 20.0, 30.0, 99.0], window_s=600)
    monday = round(MONDAY_S % WEEK_S / 1800)
    assert state.week[monday] == 20.0
    assert state.week.count(None) == 7 * DAY_SLOTS - 1


def test_windows_in_between_count_as_missing() -> None:
    state = update(after([1.0, 2.0]), rate=3.0, at_s=MONDAY_S + 300)
    assert state.rates == (1.0, 2.0, None, None, 3.0)
    assert state.observed == 3


def test_a_gap_longer_than_the_history_leaves_the_newest_window() -> None:
    state = update(after([1.0, 2.0]), rate=3.0, at_s=MONDAY_S + 30 * 86_400)
    assert set(state.rates[:-1]) == {None}
    assert state.rates[-1] == 3.0
    assert len(state.rates) == MAX_WINDOWS


def test_a_window_that_ends_too_early_is_refused() -> None:
    with pytest.raises(RuleError, match="at_s: must be the end of a later window, near"):
        update(after([1.0, 2.0]), rate=3.0, at_s=MONDAY_S + 120)


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf"), 2e9])
def test_a_rate_outside_its_range_is_refused(rate: float) -> None:
    with pytest.raises(RuleError, match=r"rate: must be from 0 to 1e\+09"):
        update(after([1.0]), rate=rate, at_s=MONDAY_S + 120)


def test_a_stored_state_without_its_newest_rate_is_refused() -> None:
    stored = after([1.0]).model_dump(mode="json") | {"rates": [1.0, None]}
    with pytest.raises(ValueError, match="must end with the rate of the window"):
        ForecastState.model_validate(stored)
