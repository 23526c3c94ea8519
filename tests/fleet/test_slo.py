"""Service level objectives."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.documents import parse_document, read_model, write_model
from fleet.errors import DocumentError
from fleet.slo import MAX_LIMIT_MS, PERCENTILES, LatencyLimits, Metric, Slo, Statistic


def read(text: str) -> Slo:
    return read_model(parse_document(text, name="slo.yaml"), Slo)


def test_limits_are_read_by_metric_and_statistic() -> None:
    slo = read("ttft_ms: {p50: 300, p99: 2000}\ntpot_ms: {mean: 40}\n")
    assert list(slo.limits()) == [
        (Metric.TTFT, Statistic.P50, 300.0),
        (Metric.TTFT, Statistic.P99, 2000.0),
        (Metric.TPOT, Statistic.MEAN, 40.0),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "ttft_ms: {}",
            "line 1: needs a limit: at least one of ttft_ms, tpot_ms, e2e_ms at one of mean, p50, p90, p95, p99",
        ),
        (
            "ttft_ms:\n  p50: 300\n  p99: 200",
            "line 3: ttft_ms.p99: 200 ms is less than p50 allows, expected at least 300 ms",
        ),
        ("e2e_ms: {p95: 0}", "line 1: e2e_ms.p95: input should be greater than 0, got 0"),
        ("e2e_ms: {p95: 4e6}", "line 1: e2e_ms.p95: input should be less than or equal to 3600000, got 4000000.0"),
        ("e2e_ms: {p95: .nan}", "line 1: e2e_ms.p95: expected a finite number, got nan"),
        ("tpot_ms: {p98: 40}", "line 1: tpot_ms.p98: is not a known field"),
        ("tpot_s: {p99: 40}\ntpot_ms: {p99: 40}", "line 1: tpot_s: is not a known field"),
    ],
)
def test_invalid_limits_are_refused(text: str, problem: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read(text)
    assert [str(each) for each in caught.value.problems] == [problem]


def test_a_mean_may_exceed_the_percentiles() -> None:
    assert LatencyLimits(mean=500, p50=100, p99=400).mean == 500


limits_ms = st.floats(min_value=0.001, max_value=MAX_LIMIT_MS)


@st.composite
def slos(draw: st.DrawFn) -> dict[str, Any]:
    """Documents with rising percentiles."""
    document = {}
    for metric in draw(st.lists(st.sampled_from(Metric), min_size=1, unique=True)):
        chosen = draw(st.lists(st.sampled_from(PERCENTILES), unique=True, min_size=1).map(sorted))
        rising = sorted(draw(st.lists(limits_ms, min_size=len(chosen), max_size=len(chosen))))
        document[str(metric)] = dict(zip(map(str, sorted(chosen, key=PERCENTILES.index)), rising, strict=True))
    return document


@given(slos())
def test_writing_and_reading_gives_the_same(document: dict[str, Any]) -> None:
    slo = Slo.model_validate(document)
    assert read(write_model(slo)) == slo
    assert read(slo.model_dump_json(exclude_none=True)) == slo


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=200), st.sampled_from(PERCENTILES))
def test_a_percentile_is_the_smallest_sample_with_its_share_at_or_below(
    samples: list[float], statistic: Statistic
) -> None:
    quantile = statistic.quantile
    assert quantile is not None
    value = statistic.of(samples)
    assert value in samples
    at_or_below = sum(sample <= value for sample in samples) / len(samples)
    below = sum(sample < value for sample in samples) / len(samples)
    assert at_or_below >= quantile - 1e-12
    assert below < quantile + 1e-12


@given(st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=50))
def test_higher_percentiles_have_higher_or_equal_values(samples: list[float]) -> None:
    values = [statistic.of(samples) for statistic in PERCENTILES]
    assert values == sorted(values)
    assert Statistic.MEAN.of(samples) == pytest.approx(float(np.mean(samples)))
