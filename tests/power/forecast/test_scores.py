"""Scores against their definitions, and the outcome of a rise against a plain loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from power.controls import Phase, Priority
from power.forecast.drivers import ending_driver_w, phase_drivers_w
from power.forecast.metrics import highest_rise_w, score
from power.server_model import BLOOM_A100


@given(st.lists(st.floats(0, 1e6), min_size=25, max_size=60), st.integers(1, 20))
def test_the_highest_rise_is_what_a_loop_finds(watts: list[float], lag: int) -> None:
    expected = [max(watts[i + 1 : i + 1 + lag]) - watts[i] for i in range(len(watts) - lag)]
    assert highest_rise_w(np.array(watts), lag).tolist() == expected


def test_the_true_quantile_loses_least() -> None:
    outcome = np.random.default_rng(0).normal(0, 1, 20_000)
    for share in (0.5, 0.9, 0.99):
        true = float(np.quantile(outcome, share))
        losses = [score(np.full(20_000, true + off), outcome, quantile=share).pinball_w for off in (-0.3, 0.0, 0.3)]
        assert min(losses) == losses[1]


def test_a_score_by_hand() -> None:
    found = score(np.array([1.0, 1.0, 1.0, 1.0]), np.array([0.0, 1.0, 2.0, 5.0]), quantile=0.9)
    assert (found.coverage, found.mean_w) == (0.5, 1.0)
    assert found.pinball_w == pytest.approx((0.1 * 1 + 0.9 * 1 + 0.9 * 4) / 4)


def test_drivers_count_watts_above_idle() -> None:
    counts = np.zeros((1, 2, 5))
    counts[0, Priority.LOW, Phase.TOKEN], counts[0, Priority.HIGH, Phase.PROMPT] = 3, 2
    token_w, prompt_w = phase_drivers_w(counts, [BLOOM_A100])
    assert token_w == pytest.approx(3 * (BLOOM_A100.token_w() - BLOOM_A100.idle_w))
    assert prompt_w == pytest.approx(2 * (BLOOM_A100.prompt_w() - BLOOM_A100.idle_w))


def test_a_prompt_that_ends_half_way_counts_half() -> None:
    assert ending_driver_w(np.array([1.0, 5.0]), 3000.0) == pytest.approx(1500 + 3000)
