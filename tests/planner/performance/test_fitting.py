"""The fit, on points of an engine with known coefficients."""

import datetime as dt
from functools import cache

import numpy as np
import pytest

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner.performance.aiconfigurator import read_points
from planner.performance.closed_loop import Sample, predict
from planner.performance.coefficients import Coefficients
from planner.performance.fitting import PORTABLE, Residuals, fit, held_back, mape, validate
from tests.planner.performance.synthetic_points import SLOWER_ENGINE, TRUTH, rows

pytest.importorskip("scipy", reason="fitting needs the extra `fit`")

NOISE = 0.1


@cache
def sample(noise: float) -> Sample:
    return Sample(read_points(rows(noise=noise), gpus=builtin_gpus(), models=(builtin_models(),)).points)


@cache
def fitted(noise: float) -> Coefficients:
    return fit(sample(noise), fitted=dt.date(2026, 1, 2), source="made up", rejected={"why": 3})


def test_the_fit_recovers_noise_free_samples() -> None:
    """Without noise only the shrinkage and effects outside the terms remain as errors."""
    found = predict(sample(0.0), fitted(0.0))
    assert mape(found.tpot_s, sample(0.0).tpot_s) < 0.02
    assert mape(found.ttft_s, sample(0.0).ttft_s) < 0.05


def test_the_slower_engine_appears_in_its_term() -> None:
    truth = Residuals.of(sample(0.0), TRUTH).correction(PORTABLE)
    assert truth.tpot["sglang"] == pytest.approx(np.log(SLOWER_ENGINE), rel=0.25)
    assert abs(truth.tpot.get("moe", 0.0)) < 0.02


def test_the_fit_reports_its_basis() -> None:
    found = fitted(NOISE)
    assert (found.points, found.source, found.rejected) == (162, "made up", {"why": 3})
    assert found.measured_gpus == ("B200", "H100-SXM", "H200-SXM")
    assert set(found.intervals) == {"dense", "dense-unseen", "moe", "moe-unseen"}


def test_only_measured_gpu_types_use_the_local_correction() -> None:
    found = fitted(NOISE)
    assert found.correction("H100-SXM") is found.local
    assert found.correction("A100-80GB-SXM") is found.portable
    assert not any(name.startswith(("gpu:", "model:")) for name in found.portable.tpot)


def test_errors_and_intervals_match_the_noise() -> None:
    """The error of held-out points is about the noise, and the interval covers about nine in ten of them."""
    splits = dict(held_back(sample(NOISE), seed=3))
    found = validate(sample(NOISE), split="random", held=splits["random"])
    expected = NOISE * np.sqrt(2 / np.pi)
    assert found.error.tpot_mape == pytest.approx(expected, rel=0.5)
    assert found.error.tpot_coverage > 0.75
    assert found.error.points == 54


def test_a_held_out_gpu_type_is_predicted_from_the_others() -> None:
    splits = dict(held_back(sample(0.0), seed=3))
    found = validate(sample(0.0), split="without B200", held=splits["without B200"])
    assert "B200" not in found.coefficients.measured_gpus
    assert found.error.tpot_mape < 0.12


def test_splits_hold_out_the_named_points() -> None:
    points = sample(NOISE)
    splits = dict(held_back(points, seed=1))
    assert splits["random"].sum() == len(points.points) // 3
    curves = splits["curves"]
    assert not set(points.curves[curves]) & set(points.curves[~curves])
    assert {points.points[i].config.gpu.name for i in np.flatnonzero(splits["without B200"])} == {"B200"}


def test_fewer_than_100_points_are_refused() -> None:
    few = Sample(sample(0.0).points[:10])
    with pytest.raises(ValueError, match="at least 100"):
        fit(few, fitted=dt.date(2026, 1, 2), source="made up")
