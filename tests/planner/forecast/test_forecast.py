"""The forecast: honest at the start, prompt after a change, covering in the long run, and defined for any history."""

from collections.abc import Sequence
from itertools import islice, pairwise
from math import isfinite

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.demand_forecast import QUANTILES as REPORTED
from bench.demand_forecast import fleetwright, highest
from bench.demand_series import REPORT, demands
from fleet.documents import RuleError
from planner.forecast import ForecastState, forecast, update
from tests.planner.forecast.histories import MONDAY_S, after

QUANTILES = (0.5, 0.9, 0.95, 0.99)


def noisy(rate: float, *, windows: int, seed: int = 0, noise: float = 0.1) -> list[float]:
    factors = np.random.default_rng(seed).gamma(1 / noise**2, noise**2, windows)
    return [rate * float(factor) for factor in factors]


class TestStart:
    def test_one_window_gives_wide_quantiles(self) -> None:
        median, high = forecast(after([10.0]), horizon_s=300, quantiles=(0.5, 0.9))
        assert median >= 10
        assert high >= 15

    def test_the_margin_shrinks_with_experience(self) -> None:
        early, late = (
            forecast(after(noisy(10.0, windows=count)), horizon_s=60, quantiles=(0.9,))[0] for count in (3, 200)
        )
        assert late < 0.75 * early

    def test_without_a_window_there_is_no_forecast(self) -> None:
        with pytest.raises(RuleError, match="rates: must have at least one window"):
            forecast(ForecastState(window_s=60), horizon_s=60, quantiles=(0.9,))


class TestChanges:
    @pytest.mark.parametrize("seed", range(2))
    @pytest.mark.parametrize("factor", [2.0, 10.0])
    @pytest.mark.parametrize("before", [5, 60, 250])
    def test_a_rise_is_followed_within_two_windows(self, before: int, factor: float, seed: int) -> None:
        state = after(noisy(10.0, windows=before, seed=seed, noise=0.05))
        risen = after([10 * factor, 10 * factor], state=state)
        for horizon_s in (60, 300, 900):
            assert forecast(risen, horizon_s=horizon_s, quantiles=(0.9,))[0] >= 10 * factor

    def test_one_high_window_is_not_a_new_level(self) -> None:
        state = after([30.0, *noisy(10.0, windows=3, seed=1)], state=after(noisy(10.0, windows=200)))
        assert forecast(state, horizon_s=60, quantiles=(0.9,))[0] < 15

    def test_a_fall_is_followed_within_a_quarter_of_an_hour(self) -> None:
        state = after(noisy(5.0, windows=15, seed=1), state=after(noisy(20.0, windows=200)))
        assert forecast(state, horizon_s=60, quantiles=(0.9,))[0] < 8

    def test_a_rise_at_the_same_time_each_day_is_expected(self) -> None:
        def rate(window: int) -> float:
            return 10.0 + 2.5 * min(window % 36, 12) if window % 36 < 18 else 10.0  # each third hour

        state = after((rate(i) for i in range(2 * 288 + 8)), window_s=300)
        unaware = state.model_copy(update={"week": ForecastState(window_s=300).week})
        known, unknown = (forecast(each, horizon_s=600, quantiles=(0.5,))[0] for each in (state, unaware))
        assert known > unknown + 2.0


class TestCoverage:
    @pytest.mark.parametrize("horizon_s", [60, 300])
    def test_the_share_above_a_quantile_holds_while_noise_and_level_change(self, horizon_s: int) -> None:
        phases = [noisy(rate, windows=250, noise=noise, seed=1) for rate, noise in ((10, 0.1), (30, 0.4), (5, 0.2))]
        rates = [rate for phase in phases for rate in phase]
        ahead, state, found = horizon_s // 60, ForecastState(window_s=60), []
        for rate in rates:
            state = after([rate], state=state)
            found.append(forecast(state, horizon_s=horizon_s, quantiles=(0.9, 0.95)))
        above = highest(np.array(rates), ahead=ahead)[:, None] > np.array(found)[:-ahead]
        assert above[:, 0].mean() <= 0.11
        assert above[:, 1].mean() <= 0.06

    def test_an_outcome_above_the_quantile_raises_its_correction_by_more_than_one_below_lowers_it(self) -> None:
        state = after(noisy(10.0, windows=100))
        risen, fallen = (after([rate], state=state) for rate in (100.0, 0.0))
        at = QUANTILES.index(0.95)
        assert risen.corrections[0][at] - state.corrections[0][at] == pytest.approx(
            19 * (state.corrections[0][at] - fallen.corrections[0][at]), rel=1e-3
        )

    def test_public_traces_stay_below_their_quantiles(self) -> None:
        found = list(islice(demands(REPORT), 2))
        if not found:
            pytest.skip("the public traces are not beside the checkout")
        for demand in found:
            outcome = highest(demand.rates, ahead=2)
            covered = np.mean(outcome[10:, None] <= fleetwright(demand)[60.0][10 : len(outcome)], axis=0)
            assert all(share >= quantile - 0.05 for share, quantile in zip(covered, REPORTED, strict=True))


@st.composite
def histories(draw: st.DrawFn) -> ForecastState:
    """Any rates, with gaps of up to 50 windows."""
    state, at_s = ForecastState(window_s=draw(st.sampled_from([30.0, 60.0, 300.0]))), MONDAY_S
    for rate, gap in draw(st.lists(st.tuples(st.just(0.0) | st.floats(0, 1e9), st.integers(1, 50)), min_size=1)):
        at_s += gap * state.window_s
        state = update(state, rate=rate, at_s=at_s)
    return state


@settings(max_examples=50, deadline=None)
@given(histories(), st.integers(1, 32))
def test_quantiles_of_any_history_are_finite_and_rise(state: ForecastState, ahead: int) -> None:
    values = forecast(state, horizon_s=ahead * state.window_s, quantiles=(*QUANTILES, 0.999))
    assert all(isfinite(value) and value >= 0 for value in values)
    assert all(low <= high for low, high in pairwise(values))


@settings(max_examples=30, deadline=None)
@given(histories())
def test_a_stored_state_gives_the_same_forecast(state: ForecastState) -> None:
    stored = ForecastState.model_validate_json(state.model_dump_json())
    given = {"horizon_s": 3 * state.window_s, "quantiles": QUANTILES}
    assert forecast(stored, **given) == forecast(state, **given)  # type: ignore[arg-type]


def test_no_demand_forecasts_no_demand() -> None:
    assert forecast(after([0.0] * 50), horizon_s=300, quantiles=QUANTILES) == pytest.approx([0.0] * 4, abs=1e-6)


def test_a_window_without_a_rate_is_neither_an_outcome_nor_a_rate_of_zero() -> None:
    rates = noisy(10.0, windows=100)
    state = after(rates[:50])
    resumed = after(rates[50:], state=state.model_copy(update={"ended_at_s": MONDAY_S + 80 * 60}))
    gap = update(state, rate=rates[50], at_s=MONDAY_S + 81 * 60)
    assert gap.rates.count(None) == 30
    with_gap = forecast(after(rates[51:], state=gap), horizon_s=60, quantiles=(0.9,))[0]
    assert with_gap == pytest.approx(forecast(resumed, horizon_s=60, quantiles=(0.9,))[0], rel=0.05)


@pytest.mark.parametrize(
    ("horizon_s", "quantiles", "named"),
    [
        (0.0, (0.9,), "horizon_s"),
        (33 * 60.0, (0.9,), "horizon_s"),
        (60.0, (0.4,), "quantiles"),
        (60.0, (1.0,), "quantiles"),
    ],
)
def test_values_outside_their_range_are_refused(horizon_s: float, quantiles: Sequence[float], named: str) -> None:
    with pytest.raises(RuleError, match=named):
        forecast(after([1.0]), horizon_s=horizon_s, quantiles=quantiles)
