"""The intervals the planner states are those that the comparison with measured points yields."""

import csv
from pathlib import Path

import pytest

from bench.roofline_error import summaries
from planner.error_bands import DENSE_BANDS

ROOT = Path(__file__).resolve().parents[2]
POINTS = ROOT.parent / "shared" / "data" / "planner" / "aiconfigurator" / "silicon_sample.csv"

POINT = {
    "mode": "agg",
    "precision": "",
    "gemm_quant_mode": "",
    "pp_size": "1",
    "tp_size": "1",
    "model_path": "meta-llama/Llama-3.1-8B-Instruct",
    "system": "h100_sxm",
    "batch_size": "16",
    "isl": "1024",
    "osl": "1024",
    "silicon_ttft_ms": "100",
    "silicon_tpot_ms": "10",
}


def test_points_that_say_nothing_about_the_roofline_are_left_out() -> None:
    others = ({"mode": "disagg"}, {"precision": "fp8"}, {"pp_size": "2"}, {"system": "tpu"}, {"batch_size": "100000"})
    (summary,) = summaries([POINT, *({**POINT, **change} for change in others)])
    assert (summary.gpu, summary.points) == ("H100-SXM", 1)


def test_twice_the_latency_is_half_the_rate() -> None:
    slow = POINT | {"silicon_ttft_ms": "200", "silicon_tpot_ms": "20"}
    (fast_summary,), (slow_summary,) = summaries([POINT]), summaries([slow])
    assert slow_summary.rate_median == pytest.approx(fast_summary.rate_median / 2)
    assert slow_summary.ttft_median == pytest.approx(fast_summary.ttft_median * 2)


@pytest.mark.skipif(not POINTS.exists(), reason="the measured points lie beside the checkout only")
def test_the_bands_are_those_measured() -> None:
    with POINTS.open(newline="", encoding="utf-8") as file:
        measured = {summary.gpu: summary for summary in summaries(csv.DictReader(file))}
    for gpu, band in DENSE_BANDS.items():
        found = measured[gpu]
        assert (band.low, band.high) == (round(found.rate_low, 2), round(found.rate_high, 2))
        assert band.points == found.points
