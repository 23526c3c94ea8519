"""Load profiles: each seed gives different days with the same hours at each level."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fleet.documents import RuleError, parse_document, read_model, write_model
from power.workload.load_profile import Curve, Quantile, Shape, builtin_shape


def drawn(seed: int, days: float = 14.0) -> Curve:
    return builtin_shape().drawn(days=days, rng=np.random.default_rng(seed))


def test_seeds_give_different_days_with_the_same_hours_at_each_level() -> None:
    one, other = drawn(1), drawn(2)
    assert not np.array_equal(one.levels, other.levels)
    assert np.array_equal(np.sort(one.levels), np.sort(other.levels))


def test_equal_seeds_give_equal_profiles() -> None:
    assert np.array_equal(drawn(3).levels, drawn(3).levels)


def test_the_profile_repeats_by_week() -> None:
    by_day = np.mean([drawn(seed).levels[:-1].reshape(14, 144).mean(1) for seed in range(20)], axis=0)
    assert np.corrcoef(by_day[:7], by_day[7:])[0, 1] > 0.9


def test_the_profile_is_smooth() -> None:
    """Within ten minutes the measured load never moved by more than a fifth of the peak."""
    assert np.abs(np.diff(drawn(4).levels)).max() < 0.2


@pytest.mark.parametrize("days", [0.25, 1, 2.5, 7, 13])
def test_a_short_run_contains_the_peak_of_a_fortnight(days: float) -> None:
    curve = drawn(5, days)
    assert curve.duration_s == days * 86_400
    assert curve.levels.max() == 1


def test_a_run_longer_than_a_measured_profile_repeats_it() -> None:
    curve = Curve(21_600.0, np.array([0.5, 1.0, 0.75, 0.5, 0.5])).of_days(2)
    assert curve.levels.tolist() == [0.5, 1.0, 0.75, 0.5, 0.5, 1.0, 0.75, 0.5, 0.5]


@given(st.lists(st.floats(0, 1), min_size=2, max_size=50))
def test_levels_are_exact_at_steps_and_linear_between_them(levels: list[float]) -> None:
    curve = Curve(10.0, np.array(levels))
    steps = 10.0 * np.arange(len(levels), dtype=np.float64)
    assert curve.at(steps) == pytest.approx(levels)
    assert curve.at(steps[:-1] + 5) == pytest.approx((np.array(levels[1:]) + levels[:-1]) / 2)
    fine = np.linspace(0, curve.duration_s, 20 * (len(levels) - 1) + 1)
    assert curve.mean == pytest.approx(float(np.mean((curve.at(fine[1:]) + curve.at(fine[:-1])) / 2)))


def test_a_shape_round_trips_through_a_document() -> None:
    text = write_model(builtin_shape())
    assert read_model(parse_document(text, name="shape"), Shape) == builtin_shape()


@pytest.mark.parametrize(
    ("points", "field"),
    [
        ([(0.0, 0.4), (1.0, 0.9)], "end at level 1"),
        ([(0.1, 0.4), (1.0, 1.0)], "run from share 0"),
        ([(0.0, 0.4), (0.5, 0.3), (1.0, 1.0)], "no lower level"),
        ([(0.0, 0.4), (0.5, 0.5), (0.5, 0.6), (1.0, 1.0)], "larger share"),
    ],
)
def test_inconsistent_levels_are_refused(points: list[tuple[float, float]], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        Shape(name="x", levels=tuple(Quantile(share=share, level=level) for share, level in points))


@pytest.mark.parametrize("days", [0.0, -1.0, 401.0])
def test_days_out_of_range_are_refused(days: float) -> None:
    with pytest.raises(RuleError, match="days"):
        drawn(1).of_days(days)


@pytest.mark.parametrize("levels", [[0.5], [0.5, 1.2], [-0.1, 0.5]])
def test_levels_out_of_range_are_refused(levels: list[float]) -> None:
    with pytest.raises(RuleError, match="levels"):
        Curve(600.0, np.array(levels))
