"""The load generator reproduces the skew that was published with the recordings."""

from pathlib import Path

import numpy as np
import pytest

from bench.expert_loads import NAMES, PREFILL_LENGTHS, SHAPES, named, stand_in, synthetic
from placement.arrays import Floats


def _slopes(tokens: Floats) -> Floats:
    """Slopes of log load over log rank, for the hotter half of each layer's experts."""
    hottest = -np.sort(-tokens, axis=1)[:, : tokens.shape[1] // 2]
    ranks = np.log(np.arange(1, hottest.shape[1] + 1))
    slopes: Floats = -np.polyfit(ranks, np.log(hottest).T, 1)[0]
    return slopes


def _peaks(tokens: Floats) -> Floats:
    peaks: Floats = tokens.max(axis=1) / tokens.mean(axis=1)
    return peaks


def _rank_correlation(one: Floats, other: Floats) -> float:
    ranks = [np.argsort(np.argsort(tokens, axis=1), axis=1) for tokens in (one, other)]
    return float(np.mean([np.corrcoef(*rows)[0, 1] for rows in zip(*ranks, strict=True)]))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_stand_in_loads_are_as_skewed_as_the_recordings(name: str, seed: int) -> None:
    tokens = stand_in(name, seed=seed).tokens
    slopes = _slopes(tokens)
    assert tokens.shape == (58, 256)
    assert 0.40 < slopes.mean() < 0.62  # published: 0.42 to 0.58
    assert slopes.min() > 0.2
    assert slopes.max() < 1.0
    assert 4.9 < _peaks(tokens).mean() < 8.8  # published: 5.6 to 8.1


def test_skew_grows_with_prompt_length() -> None:
    peaks = [_peaks(stand_in(name).tokens).mean() for name in PREFILL_LENGTHS]
    assert peaks == sorted(peaks)


def test_stand_in_loads_of_one_model_correlate_like_its_recordings() -> None:
    short, long, decode = (stand_in(name).tokens for name in ("prefill_in512", "prefill_in4096", "decode_in500out1500"))
    assert _rank_correlation(short, long) == pytest.approx(0.89, abs=0.05)
    assert _rank_correlation(short, decode) == pytest.approx(0.64, abs=0.06)
    assert abs(_rank_correlation(short, stand_in("prefill_in512", seed=1).tokens)) < 0.05


@pytest.mark.parametrize("model", SHAPES)
def test_synthetic_loads_have_the_models_shape_and_depend_on_the_seed(model: str) -> None:
    one, same, other = synthetic(model), synthetic(model), synthetic(model, seed=1)
    assert one.tokens.shape == (SHAPES[model].layers, SHAPES[model].experts)
    np.testing.assert_array_equal(one.tokens, same.tokens)
    assert (one.tokens != other.tokens).any()
    assert one.tokens.min() >= 1


def test_synthetic_loads_stand_in_for_missing_recordings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEETWRIGHT_PLACEMENT_DATA", str(tmp_path))
    assert [named(name).source for name in NAMES] == ["synthetic"] * len(NAMES)


def test_recordings_are_read_without_their_dense_layers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "sglang_dsv3_expert_stats"
    folder.mkdir()
    (folder / "prefill_in512.json").write_text('{"logical_count": [[0, 0], [0, 0], [0, 0], [3, 5], [7, 1]]}')
    monkeypatch.setenv("FLEETWRIGHT_PLACEMENT_DATA", str(tmp_path))
    case = named("prefill_in512")
    assert case.source == "recorded"
    assert case.tokens.tolist() == [[3, 5], [7, 1]]
