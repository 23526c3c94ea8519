"""The highest rate within an SLO."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.slo import Metric, Slo, Statistic
from planner.performance.coefficients import Coefficients, builtin_coefficients
from planner.performance.config import ReplicaConfig
from planner.performance.rates import highest_rates, open_loop
from tests.planner.performance.synthetic_points import highest_rate

DENSE = ReplicaConfig(builtin_models().get("Llama-3.1-8B"), builtin_gpus().get("H100-SXM"), precision="fp8")
CONFIGS = (
    DENSE,
    replace(DENSE, gpu=builtin_gpus().get("A100-80GB-SXM"), precision="bf16"),
    ReplicaConfig(
        builtin_models().get("Qwen3-235B-A22B"),
        builtin_gpus().get("H200-SXM"),
        precision="fp8",
        attention_data_parallel=8,
        expert_parallel=8,
    ),
    replace(DENSE, role="prefill"),
    replace(DENSE, role="decode"),
)
TOKENS = st.integers(1, 8000)
STATISTICS = st.sampled_from(list(Statistic))
METRICS = st.sampled_from(list(Metric))


def slo(metric: Metric, statistic: Statistic, limit_ms: float) -> Slo:
    return Slo.model_validate({metric.value: {statistic.value: limit_ms}})


def rate(config: ReplicaConfig, objective: Slo, *, cv: float = 1.0, sizes: tuple[int, int] = (1000, 250)) -> float:
    return highest_rate(config, objective, input_tokens=sizes[0], output_tokens=sizes[1], arrival_cv=cv).max_rps


@given(
    st.sampled_from(CONFIGS),
    st.tuples(METRICS, STATISTICS),
    st.tuples(TOKENS, TOKENS),
    st.floats(2, 20_000),
    st.floats(1.0, 3.0),
)
def test_a_looser_limit_never_lowers_the_rate(
    config: ReplicaConfig,
    measured: tuple[Metric, Statistic],
    sizes: tuple[int, int],
    limit_ms: float,
    factor: float,
) -> None:
    tight = rate(config, slo(*measured, limit_ms), sizes=sizes)
    loose = rate(config, slo(*measured, limit_ms * factor), sizes=sizes)
    assert loose >= tight * (1 - 1e-12)


@given(st.sampled_from(CONFIGS[:3]), METRICS, TOKENS, st.floats(20, 5000))
def test_a_higher_percentile_never_raises_the_rate(
    config: ReplicaConfig, metric: Metric, input_tokens: int, limit_ms: float
) -> None:
    sizes = input_tokens, 200
    percentiles = [Statistic.P50, Statistic.P90, Statistic.P95, Statistic.P99]
    rates = [rate(config, slo(metric, statistic, limit_ms), sizes=sizes) for statistic in percentiles]
    assert rates == sorted(rates, reverse=True)


@given(st.floats(0.0, 2.0), st.floats(0.1, 2.0), st.floats(100, 3000))
def test_burstier_arrivals_never_raise_the_rate(cv: float, more: float, limit_ms: float) -> None:
    objective = slo(Metric.TTFT, Statistic.P99, limit_ms)
    assert rate(DENSE, objective, cv=cv + more) <= rate(DENSE, objective, cv=cv) * (1 + 1e-9)


def test_the_rate_under_two_limits_is_the_lower_one() -> None:
    both = Slo.model_validate({"tpot_ms": {"mean": 20}, "ttft_ms": {"p99": 400}})
    apart = rate(DENSE, slo(Metric.TPOT, Statistic.MEAN, 20)), rate(DENSE, slo(Metric.TTFT, Statistic.P99, 400))
    assert rate(DENSE, both) == pytest.approx(min(apart))


def test_the_rate_meets_its_limit_and_a_slightly_higher_one_does_not() -> None:
    """The test reads the latencies of the open loop at the mean batch that the rate implies."""
    limit_ms = 15.0
    found = rate(DENSE, slo(Metric.TPOT, Statistic.P95, limit_ms))
    loop = open_loop(DENSE, sizes=[(1000, 250)], arrival_cv=1.0, coefficients=builtin_coefficients())
    latencies = np.interp(found * np.array([1.0, 1.02]), loop.rate_rps[0], loop.tpot_s(Statistic.P95)[0]) * 1000
    assert latencies[0] <= limit_ms * 1.001
    assert latencies[1] > limit_ms


def test_the_reason_names_the_limit_and_the_best_value() -> None:
    found = highest_rate(DENSE, slo(Metric.TPOT, Statistic.P99, 0.5), input_tokens=1000, output_tokens=250)
    assert found.max_rps == 0
    assert found.reason is not None
    assert "p99 TPOT is" in found.reason
    assert "ms at best, above 0.5 ms" in found.reason


def test_a_misfit_is_reported_as_the_reason() -> None:
    big = replace(DENSE, model=builtin_models().get("Llama-3.1-405B"))
    found = highest_rate(big, slo(Metric.TPOT, Statistic.MEAN, 100), input_tokens=1000, output_tokens=250)
    assert found.max_rps == 0
    assert "GB of each GPU" in (found.reason or "")


def test_without_a_binding_limit_the_slots_limit_the_rate() -> None:
    found = highest_rate(DENSE, slo(Metric.TPOT, Statistic.MEAN, 10_000), input_tokens=1000, output_tokens=250)
    longer = rate(DENSE, slo(Metric.TPOT, Statistic.MEAN, 10_000), sizes=(16_000, 250))
    assert 0 < longer < found.max_rps


def test_the_interval_contains_the_rate_and_is_wider_without_measurements() -> None:
    objective = slo(Metric.TPOT, Statistic.MEAN, 30)
    widths = []
    for config in CONFIGS[:2]:
        found = highest_rate(config, objective, input_tokens=1000, output_tokens=250)
        assert found.interval_90 is not None
        low, high = found.interval_90
        assert low < found.max_rps < high
        widths.append(high / low)
    assert widths[1] > widths[0]


def test_a_rate_without_a_fit_has_no_interval() -> None:
    found = highest_rate(
        DENSE, slo(Metric.TPOT, Statistic.MEAN, 30), input_tokens=100, output_tokens=100, coefficients=Coefficients()
    )
    assert found.max_rps > 0
    assert found.interval_90 is None


def test_rates_of_several_sizes_match_single_calls() -> None:
    objective = Slo.model_validate({"tpot_ms": {"p90": 25}, "e2e_ms": {"mean": 20_000}})
    sizes = [(10, 10), (1000, 500), (120_000, 5), (300_000, 5)]
    together = highest_rates(DENSE, objective, sizes=sizes)
    alone = [highest_rate(DENSE, objective, input_tokens=i, output_tokens=o) for i, o in sizes]
    assert [found.reason for found in together] == [found.reason for found in alone]
    assert [found.max_rps for found in together] == pytest.approx([found.max_rps for found in alone])
    assert together[-1].max_rps == 0


def test_no_rate_exceeds_peak_compute() -> None:
    """Prompt and output tokens together are bounded by peak compute (NanoFlow, arXiv 2408.12757)."""
    for config in CONFIGS[:3]:
        peak_flops = config.tflops(config.arithmetic) * 1e12 * config.gpus
        hardware_limit_rps = peak_flops / (2 * config.model.matmul_parameters * (1000 + 250))
        assert 0 < rate(config, slo(Metric.TPOT, Statistic.MEAN, 1000)) < hardware_limit_rps


def test_requests_of_one_token_ignore_tpot_limits() -> None:
    objective = Slo.model_validate({"tpot_ms": {"p99": 0.001}, "ttft_ms": {"p99": 3000}})
    first_only = Slo.model_validate({"ttft_ms": {"p99": 3000}})
    assert rate(DENSE, objective, sizes=(2000, 1)) == rate(DENSE, first_only, sizes=(2000, 1)) > 0
    assert rate(DENSE, objective, sizes=(2000, 2)) == 0


def test_a_prompt_read_meanwhile_adds_more_to_the_tpot_of_a_short_answer() -> None:
    loops = {
        tokens: open_loop(DENSE, sizes=[(4000, tokens)], arrival_cv=1.0, coefficients=builtin_coefficients())
        for tokens in (10, 300)
    }
    excess = {}
    for tokens, loop in loops.items():
        both = [loop.tpot_s(statistic)[0] for statistic in (Statistic.P99, Statistic.MEAN)]
        at_three_rps = [np.interp(3.0, loop.rate_rps[0], values) for values in both]
        excess[tokens] = at_three_rps[0] / at_three_rps[1]
    assert excess[10] > 1.25 * excess[300] > 1.25


def test_a_slow_cache_link_lowers_the_rate_of_a_prefill_replica() -> None:
    prefill = replace(DENSE, role="prefill")
    objective = slo(Metric.TTFT, Statistic.MEAN, 1500)
    slow_link = replace(prefill, kv_link_gb_per_s=1.0)
    assert rate(slow_link, objective, sizes=(8000, 1)) < rate(prefill, objective, sizes=(8000, 1))


def test_a_decode_replica_has_a_higher_rate_than_a_combined_one() -> None:
    objective = slo(Metric.TPOT, Statistic.MEAN, 20)
    assert rate(replace(DENSE, role="decode"), objective, sizes=(4000, 250)) > rate(DENSE, objective, sizes=(4000, 250))
