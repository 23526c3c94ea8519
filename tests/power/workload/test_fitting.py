"""Measured rates become load profiles and the parameters of their model."""

import numpy as np
import pytest

from bench.harness import text as shared_text
from fleet.documents import RuleError
from fleet.errors import DocumentError
from power.workload import fitted, read_rates
from power.workload.fitting import course, is_rates
from power.workload.load_profile import Harmonic, Quantile, Shape, builtin_shape

RATES = "servegen_m-large_rate_600s.csv.gz"


def test_a_profile_is_smoothed_clipped_and_kept_above_its_floor() -> None:
    rates = np.full(1000, 10.0)
    rates[500] = 1000.0  # a burst of one window: smoothed to 340 over three, above the 99.5 % quantile
    curve = course(rates, 600.0)
    assert curve.levels.max() == 1
    assert np.count_nonzero(curve.levels == 1) == 1000 - 3 + 3 + 1  # all others are the peak then
    idle = course(np.concatenate([np.zeros(500), np.full(500, 10.0)]), 600.0)
    assert idle.levels[0] == pytest.approx(0.40)
    assert idle.levels[700] == 1


def test_a_fit_recovers_the_parameters_that_generated_the_rates() -> None:
    model = Shape(
        name="made",
        levels=tuple(Quantile(share=share, level=0.4 + 0.6 * share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)),
        harmonics=(
            Harmonic(period_s=86_400, cosine=0.6, sine=-0.4),
            Harmonic(period_s=604_800, cosine=0.5, sine=0.0),
        ),
        wander=0.5,
        wander_s=7200.0,
        smooth_s=0.0,  # fitting smooths
    )
    levels = model.drawn(days=140, rng=np.random.default_rng(0)).levels[:-1]
    found = fitted((levels - 0.4) / 0.6, 600.0, name="found")
    day, half_day, week, _ = found.harmonics
    deviation = (
        (0.6**2 + 0.4**2 + 0.5**2) / 2 + 0.5**2
    ) ** 0.5  # ranks have no scale, so the fit is in standard deviations
    assert (deviation * day.cosine, deviation * day.sine) == pytest.approx((0.6, -0.4), abs=0.05)
    assert (half_day.cosine, half_day.sine) == pytest.approx((0.0, 0.0), abs=0.05)
    assert deviation * week.cosine == pytest.approx(0.5, abs=0.1)
    assert deviation * found.wander == pytest.approx(0.5, abs=0.05)
    assert found.wander_s == pytest.approx(7200, rel=0.2)
    middle = next(point.level for point in found.levels if point.share == 0.5)
    assert middle == pytest.approx(0.7, abs=0.02)


def test_the_shipped_shape_equals_the_fit_of_the_public_file() -> None:
    text = shared_text("power", RATES)
    if text is None:
        pytest.skip(f"{RATES} is not present")
    rates, step_s = read_rates(text, name=RATES)
    found = fitted(rates, step_s, name="m-large")
    assert found.model_dump(exclude={"source", "date"}) == builtin_shape().model_dump(exclude={"source", "date"})


def test_drawn_profiles_vary_as_much_as_the_measured_one() -> None:
    text = shared_text("power", RATES)
    if text is None:
        pytest.skip(f"{RATES} is not present")
    measured = course(*read_rates(text, name=RATES))
    drawn = [builtin_shape().drawn(days=14, rng=np.random.default_rng(seed)) for seed in range(5)]
    moves = [float(np.abs(np.diff(curve.levels)).mean()) for curve in drawn]
    assert float(np.mean(moves)) == pytest.approx(float(np.abs(np.diff(measured.levels)).mean()), rel=0.1)
    assert drawn[0].mean == pytest.approx(measured.mean, abs=0.002)


def test_rates_are_read_by_their_header() -> None:
    text = "window_start_s,total_rate_rps\n0,1.5\n600,2.5\n1200,0\n"
    rates, step_s = read_rates(text, name="x")
    assert (rates.tolist(), step_s) == ([1.5, 2.5, 0.0], 600.0)
    assert is_rates(text)
    assert not is_rates("TIMESTAMP,ContextTokens,GeneratedTokens\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "unknown header"),
        ("window_start_s,rate_rps\n0,1\n", "1 windows"),
        ("window_start_s,rate_rps\n0,1\n600,-1\n", "line 3.*at least 0"),
        ("window_start_s,rate_rps\n0,1\n600\n", "line 3"),
        ("window_start_s,rate_rps\n0,1\n600,nan\n", "line 3"),
        ("window_start_s,rate_rps\n0,1\n600,1\n1800,1\n", "line 4.*even steps"),
        ("window_start_s,rate_rps\n0,1\n0,1\n", "even steps"),
    ],
)
def test_invalid_rate_files_are_refused_with_the_line(text: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        read_rates(text, name="x")


def test_rates_of_zero_throughout_are_refused() -> None:
    with pytest.raises(RuleError, match="0 throughout"):
        course(np.zeros(100), 600.0)
