"""What a forecast remembers: order, gaps, limits and the round trip through JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from planner.forecast import ForecastState, update
from planner.forecast.state import MAX_WINDOWS

RATES = st.lists(st.floats(0, 1e6), min_size=1, max_size=40)


def after(rates: list[float], *, window_s: float = 60.0) -> ForecastState:
    state = ForecastState(window_s=window_s)
    for i, rate in enumerate(rates):
        state = update(state, rate=rate, at_s=(i + 1) * window_s)
    return state


@given(RATES)
def test_json_holds_the_whole_state(rates: list[float]) -> None:
    state = after(rates)
    assert ForecastState.model_validate_json(state.model_dump_json()) == state


def test_the_state_stays_within_a_few_kilobytes() -> None:
    state = after([1234.5 + i for i in range(3 * MAX_WINDOWS)])
    assert state.observed == 3 * MAX_WINDOWS
    assert len(json.dumps(state.model_dump(mode="json"))) < 5000


def test_windows_in_between_count_as_missing() -> None:
    state = update(after([1.0, 2.0]), rate=3.0, at_s=300.0)
    assert state.rates == (1.0, 2.0, None, None, 3.0)
    assert state.observed == 3


def test_a_window_that_ends_too_early_is_refused() -> None:
    with pytest.raises(RuleError, match=r"at_s: must be the end of a later window, near 180 s, got 120"):
        update(after([1.0, 2.0]), rate=3.0, at_s=120.0)


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf"), 2e9])
def test_a_rate_outside_its_range_is_refused(rate: float) -> None:
    with pytest.raises(RuleError, match=r"rate: must be from 0 to 1e\+09"):
        update(after([1.0]), rate=rate, at_s=120.0)
