"""The day-ahead forecast: periodic profiles, calibrated quantiles, periods that cover their steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from power.arrays import Floats
from power.forecast import Steps, next_day
from power.forecast.day_ahead import MIN_DAYS
from power.forecast.metrics import score

STEP_S = 600.0
PER_DAY = 144
HOURS = np.arange(PER_DAY) / 6


def days(count: int, *, seed: int = 0, of_days: float = 5e3, of_steps: float = 2e3) -> Floats:
    """Return [day, step]: a wave with an error of each day and one of each step."""
    rng = np.random.default_rng(seed)
    wave = 150e3 + 40e3 * np.sin(2 * np.pi * (HOURS - 9) / 24)
    made: Floats = wave + rng.normal(0, of_days, (count, 1)) + rng.normal(0, of_steps, (count, PER_DAY))
    return made


def of(past: Floats, weekday: int | None = None) -> Steps:
    return Steps(step_s=STEP_S, watts=past.ravel(), weekday=weekday)


class TestProfile:
    def test_a_daily_pattern_is_forecast(self) -> None:
        past = days(10, of_days=0, of_steps=0)
        assert next_day(of(past)).watts[:, 0] == pytest.approx(past[0], abs=1.0)

    def test_weekends_are_forecast_from_weekends(self) -> None:
        """Six weeks from a Monday on; on Saturdays and Sundays half of the load."""
        past = days(40, of_days=0, of_steps=100)
        past[np.arange(40) % 7 >= 5] *= 0.5
        # 40 days from a Monday end with a Friday.
        saturday = next_day(of(past, weekday=0)).watts[:, 0]
        friday = next_day(of(past[:39], weekday=0)).watts[:, 0]
        assert saturday.mean() < 0.85 * friday.mean()

    @pytest.mark.parametrize("seed", range(3))
    def test_the_forecast_is_more_accurate_than_the_previous_day(self, seed: int) -> None:
        past = days(15, seed=seed)
        ahead, truth = next_day(of(past[:14])).watts[:, 0], days(15, seed=seed, of_days=0, of_steps=0)[14]
        assert np.abs(ahead - truth).mean() < np.abs(past[13] - truth).mean() + 1e3
        assert np.abs(ahead - truth).mean() < 6e3


class TestQuantiles:
    def test_quantiles_are_calibrated_over_many_days(self) -> None:
        """Coverage over all steps of 60 days, each forecast from the ten days before it."""
        made = days(70, seed=5)
        ahead = np.array([next_day(of(made[i : i + 10])).watts for i in range(60)])
        for i, share in enumerate((0.5, 0.9, 0.99)):
            found = score(ahead[:, :, i].ravel(), made[10:].ravel(), quantile=share)
            assert found.coverage == pytest.approx(share, abs=(0.09, 0.05, 0.01)[i])

    @given(st.integers(MIN_DAYS, 12), st.integers(0, 1000))
    def test_watts_rise_with_the_quantile(self, count: int, seed: int) -> None:
        ahead = next_day(of(days(count, seed=seed)))
        assert np.all(np.diff(ahead.watts, axis=1) >= 0)
        assert np.all(ahead.watts >= 0)

    def test_varying_days_widen_the_quantiles(self) -> None:
        calm, wild = (next_day(of(days(10, of_days=size))).watts for size in (1e3, 20e3))
        assert (wild[:, 2] - wild[:, 0]).mean() > 4 * (calm[:, 2] - calm[:, 0]).mean()

    def test_fewer_days_widen_the_quantiles(self) -> None:
        few, many = (
            np.mean([np.ptp(next_day(of(days(count, seed=seed))).watts, axis=1).mean() for seed in range(8)])
            for count in (4, 30)
        )
        assert few > 1.5 * many


class TestGaps:
    def test_steps_without_readings_are_interpolated(self) -> None:
        past = days(8)
        whole = next_day(of(past)).watts
        past[3, 20:30] = np.nan
        assert next_day(of(past)).watts == pytest.approx(whole, rel=0.05)

    def test_a_day_without_readings_repeats_the_one_before(self) -> None:
        past = days(8)
        past[3] = np.nan
        assert np.isfinite(next_day(of(past)).watts).all()

    def test_the_day_ahead_begins_where_the_history_ends(self) -> None:
        history = Steps(step_s=STEP_S, watts=days(6).ravel()[:-30], second_of_day=0.0)
        assert next_day(history).second_of_day == 86_400 - 30 * STEP_S


class TestRefusals:
    def test_too_few_days_are_refused(self) -> None:
        with pytest.raises(RuleError, match="watts: must have at least 4 whole days and the last one, got 3 of 3"):
            next_day(of(days(3)))

    def test_a_last_day_without_readings_is_refused(self) -> None:
        past = days(8)
        past[7] = np.nan
        with pytest.raises(RuleError, match="and the last one"):
            next_day(of(past))

    @pytest.mark.parametrize("quantile", [0.0, 1.0, -1.0])
    def test_a_quantile_outside_0_to_1_is_refused(self, quantile: float) -> None:
        with pytest.raises(RuleError, match=r"quantiles\.1|quantiles\[1\]: must be between 0 and 1"):
            next_day(of(days(5)), quantiles=(0.5, quantile))
