"""Scores against their definitions, and the outcome of a rise against a plain loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from power.forecast.metrics import highest_rise_w, score


@given(st.lists(st.floats(0, 1e6), min_size=25, max_size=60), st.integers(1, 20))
def test_the_highest_rise_equals_that_of_a_plain_loop(watts: list[float], lag: int) -> None:
    expected = [max(watts[i + 1 : i + 1 + lag]) - watts[i] for i in range(len(watts) - lag)]
    assert highest_rise_w(np.array(watts), lag).tolist() == expected


def test_the_true_quantile_has_the_least_loss() -> None:
    outcome = np.random.default_rng(0).normal(0, 1, 20_000)
    for share in (0.5, 0.9, 0.99):
        true = float(np.quantile(outcome, share))
        losses = [score(np.full(20_000, true + off), outcome, quantile=share).pinball_w for off in (-0.3, 0.0, 0.3)]
        assert min(losses) == losses[1]


def test_a_score_equals_a_manual_calculation() -> None:
    found = score(np.array([1.0, 1.0, 1.0, 1.0]), np.array([0.0, 1.0, 2.0, 5.0]), quantile=0.9)
    assert (found.coverage, found.mean_w) == (0.5, 1.0)
    assert found.pinball_w == pytest.approx((0.1 * 1 + 0.9 * 1 + 0.9 * 4) / 4)
