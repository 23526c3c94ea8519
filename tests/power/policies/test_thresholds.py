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


def clocks_over_time(policy: Polca, *readings: tuple[float, float]) -> list[Clocks]:
    """Return the clocks at each (second, share of the budget)."""
    state, requested = policy.start(), []
    for now_s, used in readings:
        state, setting = policy.decide(state, observed(used=used, now_s=now_s))
        requested.append(setting.clocks)
    return requested


def test_levels_are_those_of_an_a100() -> None:
    clocks_mhz = [1410 * clock for clock in (BASE_CLOCK, LOW_CLOCK, HIGH_CLOCK)]
    assert clocks_mhz == pytest.approx([1275, 1110, 1305])


def test_no_clock_is_lowered_up_to_the_first_threshold() -> None:
    assert clocks_over_time(Polca(), (2, 0.5), (4, 0.80)) == [Clocks(), Clocks()]


def test_above_the_first_threshold_low_priority_runs_at_base_until_the_band_is_left() -> None:
    assert clocks_over_time(Polca(), (2, 0.81), (4, 0.76), (6, 0.749)) == [LOW_AT_BASE, LOW_AT_BASE, Clocks()]


def test_above_the_second_threshold_low_priority_is_capped_before_high_priority() -> None:
    readings = (2, 0.90), (4, 0.90), (41, 0.90), (42, 0.90)
    assert clocks_over_time(Polca(), *readings) == [LOW_AT_LOW, LOW_AT_LOW, LOW_AT_LOW, BOTH]


def test_high_priority_is_spared_if_the_low_priority_cap_suffices() -> None:
    assert clocks_over_time(Polca(), (2, 0.90), (42, 0.88), (44, 0.90)) == [LOW_AT_LOW, LOW_AT_LOW, BOTH]


def test_with_an_in_band_delay_high_priority_follows_at_the_next_reading() -> None:
    assert clocks_over_time(Polca(command_delay_s=2), (2, 0.90), (4, 0.90)) == [LOW_AT_LOW, BOTH]


def test_below_the_second_band_only_its_caps_are_released() -> None:
    assert clocks_over_time(Polca(), (2, 0.95), (50, 0.95), (60, 0.845), (62, 0.835)) == [
        LOW_AT_LOW,
        BOTH,
        BOTH,
        LOW_AT_BASE,
    ]


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
def test_a_reading_below_the_calm_level_changes_nothing(readings: list[float], share: float, now_s: float) -> None:
    for policy in (Polca(), OneThreshold(name="one", clocks=BOTH)):
        state, requested = policy.start(), UNTOUCHED
        for tick, reading in enumerate(readings):
            state, requested = policy.decide(state, observed(used=reading, now_s=2.0 * tick))  # type: ignore[arg-type]
        calm_w = policy.calm_below_w(state, BUDGET_W)  # type: ignore[arg-type]
        if calm_w > 0:
            below = observed(used=share * calm_w / BUDGET_W, now_s=now_s)
            assert policy.decide(state, below) == (state, requested)  # type: ignore[arg-type]


def test_the_calm_level_is_the_threshold_until_a_cap_is_in_force() -> None:
    polca, one = Polca(), OneThreshold(name="one", clocks=BOTH)
    assert polca.calm_below_w(PolcaState(), BUDGET_W) == pytest.approx(0.80 * BUDGET_W)
    assert polca.calm_below_w(PolcaState(base=True), BUDGET_W) == -inf
    assert one.calm_below_w(state=False, budget_w=BUDGET_W) == pytest.approx(0.89 * BUDGET_W)
    assert one.calm_below_w(state=True, budget_w=BUDGET_W) == -inf


def test_one_threshold_caps_above_and_releases_below_its_band() -> None:
    policy, state = OneThreshold(name="one", clocks=LOW_AT_LOW), False
    requested = []
    for used in (0.89, 0.891, 0.85, 0.839):
        state, setting = policy.decide(state, observed(used=used))
        requested.append(setting)
    assert requested == [UNTOUCHED, Setting(LOW_AT_LOW), Setting(LOW_AT_LOW), UNTOUCHED]


def test_the_untouched_policy_changes_nothing() -> None:
    policy = Untouched()
    assert policy.decide(None, observed(used=1.4)) == (None, UNTOUCHED)
    assert policy.calm_below_w(None, BUDGET_W) == inf
