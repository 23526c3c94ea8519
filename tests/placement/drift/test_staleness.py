"""The staleness of a placement, and when to act."""

import numpy as np
import pytest

from fleet.documents import RuleError
from placement.arrays import Floats
from placement.balance import balanced
from placement.dispatch import Dispatch
from placement.drift import forecast, staleness
from placement.imbalance import imbalance
from placement.layout import Layout

LAYOUT = Layout.even(slots=40, gpus=8, nodes=2)
LAYERS, EXPERTS = 4, 32


def _windows(count: int, *, pace: float, noise: float = 0.02) -> Floats:
    rng = np.random.default_rng(0)
    start, slope = rng.standard_normal((2, LAYERS, EXPERTS))
    steps = np.arange(count)[:, np.newaxis, np.newaxis]
    scatter = noise * rng.standard_normal((count, LAYERS, EXPERTS))
    tokens: Floats = np.exp(0.7 * start + pace * slope * steps + scatter) * 1e4
    return tokens


def test_a_placement_of_drifting_loads_becomes_stale() -> None:
    windows = _windows(5, pace=0.05)
    loaded = balanced(windows[-1], layout=LAYOUT)
    found = staleness(loaded, windows, layout=LAYOUT, act_above=1.1, ahead=6)
    assert found.now == pytest.approx(imbalance(loaded, windows[-1], layout=LAYOUT).mean)
    assert list(found.expected) == sorted(found.expected)
    assert found.act_in is not None
    assert 0 < found.act_in <= 6


def test_the_imbalance_of_the_next_windows_is_forecast() -> None:
    windows = _windows(8, pace=0.1, noise=0.005)
    loaded = balanced(windows[4], layout=LAYOUT)
    found = staleness(loaded, windows[:6], layout=LAYOUT, act_above=1.3, ahead=2)
    for expected, truth in zip(found.expected, windows[6:], strict=True):
        assert expected == pytest.approx(imbalance(loaded, truth, layout=LAYOUT).mean, abs=0.02)
        assert expected > found.now + 0.05


def test_above_the_level_action_is_due_at_once() -> None:
    windows = _windows(3, pace=0.5)
    loaded = balanced(windows[0], layout=LAYOUT)
    found = staleness(loaded, windows, layout=LAYOUT, act_above=1.05)
    assert found.act_in == 0


@pytest.mark.parametrize("rule", [Dispatch.EQUAL, Dispatch.NEAREST])
def test_constant_loads_need_no_action(rule: Dispatch) -> None:
    windows = np.repeat(_windows(1, pace=0.0), 4, axis=0)
    loaded = balanced(windows[0], layout=LAYOUT)
    level = imbalance(loaded, windows[0], layout=LAYOUT, rule=rule).mean + 0.001
    found = staleness(loaded, windows, layout=LAYOUT, rule=rule, act_above=level)
    assert found.act_in is None
    assert found.expected == pytest.approx((found.now,) * 4)


def test_noise_raises_the_expected_imbalance() -> None:
    windows = _windows(6, pace=0.0, noise=0.2)
    loaded = balanced(windows[-1], layout=LAYOUT)
    found = staleness(loaded, windows, layout=LAYOUT, act_above=1.1, ahead=1)
    assert found.expected[0] > imbalance(loaded, forecast(windows).tokens[0], layout=LAYOUT).mean


def test_the_same_seed_gives_the_same_draws() -> None:
    windows = _windows(4, pace=0.05)
    loaded = balanced(windows[0], layout=LAYOUT)
    first, second, other = (
        staleness(loaded, windows, layout=LAYOUT, act_above=1.1, seed=seed).expected for seed in (0, 0, 1)
    )
    assert first == second != other


def test_an_invalid_level_is_named() -> None:
    windows = _windows(2, pace=0.0)
    with pytest.raises(RuleError, match="act_above"):
        staleness(balanced(windows[0], layout=LAYOUT), windows, layout=LAYOUT, act_above=0.5)
