"""POLCA's table line by line, its baselines, and properties for any reading."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from power.controls import UNTOUCHED, Clocks, Setting
from power.policies.thresholds import BASE_CLOCK, HIGH_CLOCK, LOW_CLOCK, OneThreshold, Polca, PolcaState, Untouched
from tests.power.policies.rows import BUDGET_W, observed, shares

LOW_AT_BASE = Clocks(low_token=BASE_CLOCK, low_prompt=BASE_CLOCK)
LOW_AT_LOW = Clocks(low_token=LOW_CLOCK, low_prompt=LOW_CLOCK)
BOTH = Clocks(low_token=LOW_CLOCK, low_prompt=LOW_CLOCK, high_token=HIGH_CLOCK, high_prompt=HIGH_CLOCK)


def course(policy: Polca, *readings: tuple[float, float]) -> list[Clocks]:
    """Return the clocks at each (second, share of the budget)."""
    state, asked = policy.start(), []
    for now_s, used in readings:
        state, setting = policy.decide(state, observed(used=used, now_s=now_s))
        asked.append(setting.clocks)
    return asked


def test_levels_are_those_of_an_a100() -> None:
    clocks_mhz = [1410 * clock for clock in (BASE_CLOCK, LOW_CLOCK, HIGH_CLOCK)]
    assert clocks_mhz == pytest.approx([1275, 1110, 1305])


def test_nothing_is_asked_up_to_the_first_threshold() -> None:
    assert course(Polca(), (2, 0.5), (4, 0.80)) == [Clocks(), Clocks()]


def test_above_the_first_low_priority_stops_boosting_until_the_band_is_left() -> None:
    assert course(Polca(), (2, 0.81), (4, 0.76), (6, 0.749)) == [LOW_AT_BASE, LOW_AT_BASE, Clocks()]


def test_above_the_second_low_priority_goes_lower_and_high_follows_when_that_was_not_enough() -> None:
    readings = (2, 0.90), (4, 0.90), (41, 0.90), (42, 0.90)
    assert course(Polca(), *readings) == [LOW_AT_LOW, LOW_AT_LOW, LOW_AT_LOW, BOTH]


def test_high_priority_is_spared_where_low_was_enough() -> None:
    assert course(Polca(), (2, 0.90), (42, 0.88), (44, 0.90)) == [LOW_AT_LOW, LOW_AT_LOW, BOTH]


def test_in_band_the_second_half_follows_at_the_next_reading() -> None:
    assert course(Polca(command_delay_s=2), (2, 0.90), (4, 0.90)) == [LOW_AT_LOW, BOTH]


def test_below_the_second_band_its_action_alone_is_undone() -> None:
    assert course(Polca(), (2, 0.95), (50, 0.95), (60, 0.845), (62, 0.835)) == [LOW_AT_LOW, BOTH, BOTH, LOW_AT_BASE]


@given(readings=st.lists(shares, max_size=12), used=st.tuples(shares, shares))
def test_a_higher_reading_never_raises_clocks(readings: list[float], used: tuple[float, float]) -> None:
    for policy in (Polca(command_delay_s=2), OneThreshold(name="one", clocks=BOTH)):
        state = policy.start()
        for tick, reading in enumerate(readings):
            state, _ = policy.decide(state, observed(used=reading, now_s=2.0 * tick))  # type: ignore[arg-type]
        now_s = 2.0 * len(readings)
        _, mild = policy.decide(state, observed(used=min(used), now_s=now_s))  # type: ignore[arg-type]
        _, hard = policy.decide(state, observed(used=max(used), now_s=now_s))  # type: ignore[arg-type]
        assert hard.clocks.slower(mild.clocks) == hard.clocks


@given(readings=st.lists(shares, max_size=8), share=st.floats(min_value=0, max_value=0.999999), now_s=st.floats(0, 1e6))
def test_below_calm_nothing_changes(readings: list[float], share: float, now_s: float) -> None:
    for policy in (Polca(), OneThreshold(name="one", clocks=BOTH)):
        state, asked = policy.start(), UNTOUCHED
        for tick, reading in enumerate(readings):
            state, asked = policy.decide(state, observed(used=reading, now_s=2.0 * tick))  # type: ignore[arg-type]
        calm_w = policy.calm_below_w(state, BUDGET_W)  # type: ignore[arg-type]
        if calm_w > 0:
            below = observed(used=share * calm_w / BUDGET_W, now_s=now_s)
            assert policy.decide(state, below) == (state, asked)  # type: ignore[arg-type]


def test_calm_lasts_up_to_the_threshold_until_something_is_asked() -> None:
    polca, one = Polca(), OneThreshold(name="one", clocks=BOTH)
    assert polca.calm_below_w(PolcaState(), BUDGET_W) == pytest.approx(0.80 * BUDGET_W)
    assert polca.calm_below_w(PolcaState(base=True), BUDGET_W) == -inf
    assert one.calm_below_w(state=False, budget_w=BUDGET_W) == pytest.approx(0.89 * BUDGET_W)
    assert one.calm_below_w(state=True, budget_w=BUDGET_W) == -inf


def test_one_threshold_asks_above_and_undoes_below_the_band() -> None:
    policy, state = OneThreshold(name="one", clocks=LOW_AT_LOW), False
    asked = []
    for used in (0.89, 0.891, 0.85, 0.839):
        state, setting = policy.decide(state, observed(used=used))
        asked.append(setting)
    assert asked == [UNTOUCHED, Setting(LOW_AT_LOW), Setting(LOW_AT_LOW), UNTOUCHED]


def test_none_lets_everything_be() -> None:
    policy = Untouched()
    assert policy.decide(None, observed(used=1.4)) == (None, UNTOUCHED)
    assert policy.calm_below_w(None, BUDGET_W) == inf
