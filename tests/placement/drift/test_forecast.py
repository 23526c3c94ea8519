"""Forecasts of the next windows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import RuleError
from placement.arrays import Floats
from placement.drift import NAIVE, forecast
from placement.drift.forecast import Smoothing, ahead_of_each, ahead_of_last, shares_of

LAYERS, EXPERTS = 3, 24


def _trending(windows: int, *, noise: float = 0.0, seed: int = 0) -> Floats:
    """Logarithms of shares that change at a constant rate, a different one per expert."""
    rng = np.random.default_rng(seed)
    start, slope = rng.standard_normal((2, LAYERS, EXPERTS))
    steps = np.arange(windows)[:, np.newaxis, np.newaxis]
    tokens: Floats = np.exp(start + 0.2 * slope * steps + noise * rng.standard_normal((windows, LAYERS, EXPERTS))) * 1e4
    return tokens


def _scattering(windows: int, *, seed: int = 0) -> Floats:
    """The same loads in every window plus noise."""
    rng = np.random.default_rng(seed)
    return np.exp(rng.standard_normal((LAYERS, EXPERTS)) + 0.3 * rng.standard_normal((windows, LAYERS, EXPERTS))) * 1e4


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 4))
def test_a_forecast_is_positive_and_keeps_shape_and_total(seed: int, windows: int, ahead: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 1000, size=(windows, LAYERS, EXPERTS)).astype(np.float64) + (rng.random(EXPERTS) > 0.5)
    tokens[:, :, 0] += 1
    found = forecast(tokens, ahead=ahead)
    assert found.tokens.shape == (ahead, LAYERS, EXPERTS)
    assert (found.tokens > 0).all()
    assert found.shares.sum(axis=-1) == pytest.approx(np.ones((ahead, LAYERS)))
    assert found.tokens.sum(axis=-1) == pytest.approx(np.tile(tokens[-1].sum(axis=-1), (ahead, 1)))
    assert (forecast(tokens, ahead=ahead).tokens == found.tokens).all()


@pytest.mark.parametrize("windows", [1, 2])
def test_too_few_windows_give_the_last_window(windows: int) -> None:
    tokens = _trending(windows)
    found = forecast(tokens, ahead=2)
    assert found.smoothing == NAIVE
    assert found.tokens[1] == pytest.approx(tokens[-1])


def test_a_trend_is_forecast() -> None:
    tokens = _trending(7)
    found = forecast(tokens[:-1])
    assert found.smoothing.beta > 0
    assert _off(found.tokens[0], tokens[-1]) < _off(tokens[-2], tokens[-1]) / 4


def test_noisy_loads_are_averaged() -> None:
    tokens = _scattering(10)
    found = forecast(tokens[:-1])
    assert found.smoothing.alpha < 1
    assert _off(found.tokens[0], tokens[-1]) < _off(tokens[-2], tokens[-1])


def test_a_random_walk_keeps_the_naive_forecast() -> None:
    rng = np.random.default_rng(1)
    walk = np.exp(np.cumsum(0.2 * rng.standard_normal((8, LAYERS, 200)), axis=0))
    assert forecast(walk).smoothing == NAIVE


def test_the_spread_of_samples_matches_the_loads_and_grows_with_the_horizon() -> None:
    found = forecast(_scattering(8), ahead=4)
    drawn = np.log(found.drawn(np.random.default_rng(0), draws=400)).std(axis=0).mean(axis=-1)
    assert drawn[0] == pytest.approx(found.spread, rel=0.15)
    assert drawn[3] == pytest.approx(2 * found.spread, rel=0.15)


def test_the_spread_matches_the_error_of_the_next_window() -> None:
    inside = []
    for seed in range(20):
        tokens = _scattering(9, seed=seed)
        found = forecast(tokens[:-1])
        off = np.abs(np.log(shares_of(tokens[-1]) / found.shares[0]))
        inside.append((off <= 2 * found.spread[:, np.newaxis]).mean())
    assert 0.9 < float(np.mean(inside)) < 1


def test_a_forecast_uses_only_earlier_windows() -> None:
    shares, by = shares_of(_trending(6, noise=0.1)), Smoothing(0.7, 0.5, 0.8)
    each = ahead_of_each(shares, by=by)
    for last in range(1, 7):
        assert ahead_of_last(shares[:last], by=by, windows=1)[0] == pytest.approx(each[last - 1])


def test_an_invalid_argument_is_named() -> None:
    with pytest.raises(RuleError, match="ahead"):
        forecast(_trending(3), ahead=0)
    with pytest.raises(RuleError, match="windows"):
        forecast(np.ones((3, 4)))


def _off(one: Floats, other: Floats) -> float:
    return float(np.abs(one / one.sum(axis=-1, keepdims=True) - other / other.sum(axis=-1, keepdims=True)).sum())
