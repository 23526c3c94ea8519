"""The short-term forecast: its bounds, its calibration on unseen rows, and its value semantics."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.documents import RuleError
from power.arrays import Floats
from power.forecast import RowForecast
from power.forecast.metrics import highest_rise_w, replayed, score
from power.forecast.state_layout import FIRST_RISE_SHARE, LAGS, QUANTILES
from tests.power.forecast.rows import STEP_S, Row, row

WARM = 3600  # readings: two hours
HORIZONS_S = st.floats(0.5, 40)


@pytest.fixture(scope="module")
def day() -> Row:
    """A row over a day."""
    return row(hours=24, seed=1)


@pytest.fixture(scope="module")
def by_readings(day: Row) -> Floats:
    """Return forecasts from readings alone."""
    return replayed(_times(day), day.watts)


@pytest.fixture(scope="module")
def by_counts(day: Row) -> Floats:
    """Return forecasts from readings and counts."""
    return replayed(_times(day), day.watts, drivers_w=day.drivers_w)


def _times(of: Row) -> Floats:
    return _seconds(len(of.watts))


def _seconds(readings: int) -> Floats:
    return STEP_S * np.arange(readings, dtype=np.float64)


def _after(watts: list[float], *, first_s: float = 0.0, forecast: RowForecast | None = None) -> RowForecast:
    forecast = forecast or RowForecast.start()
    for i, row_w in enumerate(watts):
        forecast = forecast.after(at_s=first_s + i * STEP_S, row_w=row_w)
    return forecast


class TestCalibration:
    @pytest.mark.parametrize("lag", range(len(LAGS)))
    @pytest.mark.parametrize("quantile", range(len(QUANTILES)))
    @pytest.mark.parametrize("known", ["by_readings", "by_counts"])
    def test_the_share_of_outcomes_below_a_quantile_matches_it(
        self, day: Row, request: pytest.FixtureRequest, known: str, quantile: int, lag: int
    ) -> None:
        forecasts, share = request.getfixturevalue(known), QUANTILES[quantile]
        outcome = highest_rise_w(day.watts, LAGS[lag])
        found = score(forecasts[WARM : len(outcome), lag, quantile], outcome[WARM:], quantile=share)
        # The outcomes of one burst overlap, so LAGS[lag] of them count as one.
        spread = (share * (1 - share) * LAGS[lag] / len(outcome[WARM:])) ** 0.5
        assert found.coverage == pytest.approx(share, abs=max(0.004, 3 * spread) * (1 if share < 0.99 else 0.5))

    def test_coverage_holds_when_the_row_changes(self) -> None:
        """Half-way the row takes twice the load, and its swings grow."""
        calm, busy = row(hours=6, seed=2, rate=0.4), row(hours=6, seed=3, rate=1.2)
        watts = np.concatenate([calm.watts, busy.watts])
        forecasts = replayed(_seconds(len(watts)), watts)
        half = len(calm.watts) + 900
        for lag, ahead in enumerate(LAGS[:3]):
            outcome = highest_rise_w(watts, ahead)
            found = score(forecasts[half : len(outcome), lag, 2], outcome[half:], quantile=0.99)
            assert found.coverage == pytest.approx(0.99, abs=0.006)

    def test_the_forecast_beats_the_best_constant_of_the_day(self, day: Row, by_readings: Floats) -> None:
        """The constant that fits this day best in hindsight has a larger loss at each quantile of 40 s."""
        outcome = highest_rise_w(day.watts, LAGS[-1])
        for quantile, share in enumerate(QUANTILES[:3]):
            ours = score(by_readings[WARM : len(outcome), -1, quantile], outcome[WARM:], quantile=share)
            best = np.full(len(outcome) - WARM, np.quantile(outcome[WARM:], share))
            assert ours.pinball_w < score(best, outcome[WARM:], quantile=share).pinball_w

    def test_counts_of_prompts_improve_on_readings(
        self,
        day: Row,
        by_readings: Floats,
        by_counts: Floats,
    ) -> None:
        outcome = highest_rise_w(day.watts, 1)
        losses = [
            score(forecasts[WARM : len(outcome), 0, 2], outcome[WARM:], quantile=0.99).pinball_w
            for forecasts in (by_readings, by_counts)
        ]
        assert losses[1] < 0.9 * losses[0]

    def test_a_periodic_swing_is_forecast(self) -> None:
        """A training job draws 40 kW more in two of five readings, which a constant baseline counts as a rise."""
        rng = np.random.default_rng(4)
        watts = 150e3 + 40e3 * (np.arange(6000) % 5 < 2) + rng.normal(0, 500, 6000)
        forecasts = replayed(_seconds(6000), watts)[3000:5999, 0, 2]
        rises = np.diff(watts)[3000:]
        assert np.quantile(rises, 0.99) > 39e3
        assert score(forecasts, rises, quantile=0.99).coverage == pytest.approx(0.99, abs=0.006)
        assert np.mean(forecasts) < 12e3


class TestShape:
    @given(st.lists(st.floats(0, 1e6), min_size=1, max_size=120), HORIZONS_S, HORIZONS_S)
    def test_rises_grow_with_the_quantile_and_are_never_negative(
        self, watts: list[float], one_s: float, other_s: float
    ) -> None:
        forecast = _after(watts)
        for horizon_s in (one_s, other_s):
            rises = [forecast.rise_w(horizon_s, quantile) for quantile in QUANTILES]
            assert rises == sorted(rises)
            assert rises[0] >= 0
            assert np.isfinite(rises).all()

    def test_a_rise_between_two_lags_lies_between_their_rises(self, day: Row) -> None:
        forecast = _after(day.watts[:600].tolist())
        at = [forecast.rise_w(lag * STEP_S, 0.99) for lag in LAGS]
        assert min(at[1], at[2]) <= forecast.rise_w(7.0, 0.99) <= max(at[1], at[2])
        assert forecast.rise_w(0.5, 0.99) == at[0]

    def test_the_first_forecast_reserves_a_share_of_the_row(self) -> None:
        forecast = _after([200_000.0])
        assert forecast.rise_w(40, 0.999) == pytest.approx(FIRST_RISE_SHARE * 200_000)
        assert forecast.rise_w(2, 0.5) == 0

    def test_the_first_forecast_uses_a_given_prior(self) -> None:
        forecast = RowForecast.start(prior_rise_w=9000.0).after(at_s=0.0, row_w=200_000.0)
        assert forecast.rise_w(10, 0.999) == pytest.approx(9000)

    @given(st.floats(0.1, 1000))
    @settings(max_examples=10)
    def test_ten_times_the_watts_are_ten_times_the_rise(self, factor: float) -> None:
        watts = row(hours=0.5, seed=5).watts
        plain, scaled = _after(watts.tolist()), _after((watts * factor).tolist())
        assert scaled.rise_w(10, 0.99) == pytest.approx(factor * plain.rise_w(10, 0.99), rel=1e-6)

    def test_a_flat_row_is_forecast_flat(self) -> None:
        forecast = _after([100_000.0] * 3000)
        assert forecast.rise_w(40, 0.999) < 1000


class TestValue:
    def test_a_reading_returns_a_new_value_and_keeps_the_old_one(self) -> None:
        before = _after([1e5, 1.1e5])
        table = before.table.copy()
        one, other = before.after(at_s=4.0, row_w=1e5), before.after(at_s=4.0, row_w=2e5)
        assert np.array_equal(before.table, table)
        assert not np.array_equal(one.table, other.table)

    def test_equal_readings_give_equal_values(self, day: Row) -> None:
        watts = day.watts[:500].tolist()
        assert np.array_equal(_after(watts).table, _after(watts).table)

    def test_a_gap_is_no_outcome(self) -> None:
        """An hour is missing, and the row returns 100 kW higher.  This does not count as a forecast error."""
        watts = row(hours=1, seed=6).watts
        before = _after(watts.tolist())
        later_s = len(watts) * STEP_S + 3600
        after = _after((watts[:200] + 1e5).tolist(), first_s=later_s, forecast=before)
        assert after.rise_w(10, 0.999) < 3 * before.rise_w(10, 0.999)
        assert after.reading_count == len(watts) + 200

    def test_forecasts_do_not_depend_on_later_readings(self, day: Row) -> None:
        forecasts = replayed(_times(day)[:900], day.watts[:900])
        longer = replayed(_times(day)[:1000], np.concatenate([day.watts[:900], np.zeros(100)]))
        assert np.array_equal(forecasts, longer[:900])


class TestRefusals:
    @pytest.mark.parametrize("step_s", [0.0, -1.0, 61.0])
    def test_a_step_out_of_range_is_refused(self, step_s: float) -> None:
        with pytest.raises(RuleError, match="step_s: must be above 0 and at most 60"):
            RowForecast.start(step_s=step_s)

    @pytest.mark.parametrize("drivers", [-1, 9])
    def test_a_driver_count_out_of_range_is_refused(self, drivers: int) -> None:
        with pytest.raises(RuleError, match="drivers: must be 0 to 8"):
            RowForecast.start(drivers=drivers)

    def test_a_reading_without_all_drivers_is_refused(self) -> None:
        with pytest.raises(RuleError, match=r"drivers_w: must be 2 numbers, got 1\.0"):
            RowForecast.start(drivers=2).after(at_s=0.0, row_w=1.0, drivers_w=(1.0,))

    @pytest.mark.parametrize("row_w", [-1.0, float("nan"), float("inf")])
    def test_invalid_watts_are_refused(self, row_w: float) -> None:
        with pytest.raises(RuleError, match="row_w: must be a number from 0"):
            RowForecast.start().after(at_s=0.0, row_w=row_w)

    @pytest.mark.parametrize("driver_w", [float("nan"), float("-inf")])
    def test_invalid_driver_watts_are_refused(self, driver_w: float) -> None:
        with pytest.raises(RuleError, match="drivers_w"):
            RowForecast.start(drivers=1).after(at_s=0.0, row_w=1.0, drivers_w=(driver_w,))

    @pytest.mark.parametrize("at_s", [2.0, 1.0, float("nan"), float("inf")])
    def test_a_time_that_does_not_rise_is_refused(self, at_s: float) -> None:
        forecast = RowForecast.start().after(at_s=2.0, row_w=1.0)
        with pytest.raises(RuleError, match="at_s: must be later than the last reading"):
            forecast.after(at_s=at_s, row_w=1.0)

    def test_an_invalid_first_time_is_refused(self) -> None:
        with pytest.raises(RuleError, match="at_s"):
            RowForecast.start().after(at_s=float("nan"), row_w=1.0)

    @pytest.mark.parametrize("quantile", [0.95, 0.0, 1.0])
    def test_unknown_quantiles_are_refused(self, quantile: float) -> None:
        with pytest.raises(RuleError, match=r"quantile: must be one of 0.5, 0.9, 0.99, 0.999"):
            _after([1.0]).rise_w(2.0, quantile)

    @pytest.mark.parametrize("horizon_s", [0.0, -1.0, 41.0])
    def test_a_horizon_out_of_range_is_refused(self, horizon_s: float) -> None:
        with pytest.raises(RuleError, match="horizon_s: must be above 0 and at most 40"):
            _after([1.0]).rise_w(horizon_s, 0.99)

    @pytest.mark.parametrize("prior_rise_w", [0.0, -1.0, float("nan")])
    def test_a_prior_that_is_not_positive_is_refused(self, prior_rise_w: float) -> None:
        with pytest.raises(RuleError, match="prior_rise_w: must be above 0"):
            RowForecast.start(prior_rise_w=prior_rise_w)
