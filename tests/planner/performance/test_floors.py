"""Predictions and replays never exceed the spec sheet, whatever the fitted coefficients."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from fleet.slo import Slo
from planner.explain.ideal_bound import request_work
from planner.performance.config import KV_BYTES, ReplicaConfig, Role, WeightPrecision
from planner.performance.hardware_demand import demands
from planner.performance.kv_memory import misfit
from planner.performance.step_time import MAX_REACHED
from planner.performance.steps import step_costs, step_s
from tests.planner.performance.synthetic_points import highest_rate

LOOSE = Slo.model_validate({"ttft_ms": {"mean": 600_000}, "tpot_ms": {"mean": 20_000}})
PRECISIONS: tuple[WeightPrecision, ...] = ("bf16", "fp8", "fp4", "int4-wo")
ROUNDING = 1 + 1e-9


@st.composite
def configs(draw: st.DrawFn) -> ReplicaConfig:
    """Any builtin model on any builtin GPU."""
    return ReplicaConfig(
        draw(st.sampled_from(builtin_models().models)),
        draw(st.sampled_from(builtin_gpus().gpus)),
        draw(st.sampled_from(PRECISIONS)),
        tensor_parallel=draw(st.sampled_from([1, 2, 4, 8])),
        clock=draw(st.sampled_from([1.0, 0.6])),
        engine=draw(st.sampled_from(["vllm", "sglang", "trtllm"])),
    )


SIZES = st.tuples(st.integers(1, 16_000), st.integers(1, 1000))


@given(configs(), SIZES)
def test_no_rate_exceeds_the_spec_sheet(config: ReplicaConfig, size: tuple[int, int]) -> None:
    """The ideal bound counts the work, so no plan can need fewer GPUs than an ideal system."""
    found = highest_rate(config, LOOSE, input_tokens=size[0], output_tokens=size[1])
    assume(found.max_rps > 0)
    kv_bytes = KV_BYTES[config.kv_precision]
    work = request_work(config.model, input_tokens=size[0], output_tokens=size[1], kv_bytes=kv_bytes)
    fastest = max(config.tflops(config.arithmetic), config.tflops(config.base_arithmetic)) * 1e12 * config.gpus
    moved = config.gpu.bandwidth_gb_per_s * 1e9 * config.gpus
    best_rps = max(found.max_rps, (found.interval_90 or (0, 0))[1])
    assert best_rps * work.flops <= fastest
    assert best_rps * work.moved_bytes <= moved


@given(
    configs(),
    st.sampled_from(["both", "prefill", "decode"]),
    SIZES,
    st.integers(0, 256),
    st.integers(0, 8192),
)
def test_no_iteration_is_faster_than_the_spec_sheet_allows(
    config: ReplicaConfig, role: Role, size: tuple[int, int], decoding: int, prompt_tokens: int
) -> None:
    config = ReplicaConfig(
        config.model, config.gpu, config.precision, tensor_parallel=config.tensor_parallel, role=role
    )
    assume(misfit(config, sum(size)) is None and decoding + prompt_tokens > 0)
    costs = step_costs(config, input_tokens=size[0], output_tokens=size[1])
    demand = demands(config, sizes=[size])
    context, pairs = size[0] + size[1] // 2, prompt_tokens**2 / 2
    taken_s = step_s(
        costs, decoding=decoding, cached_tokens=decoding * context, prompt_tokens=prompt_tokens, pairs=pairs
    )
    arithmetic_s = (demand.token_s + demand.expert_token_s).item() * (decoding + prompt_tokens)
    arithmetic_s += demand.attention_s.item() * pairs / (size[0] ** 2 / 2)
    moved_s = demand.cache_s.item() * decoding + (demand.weights_s.item() if decoding else 0.0)
    assert arithmetic_s <= MAX_REACHED * taken_s * ROUNDING
    assert moved_s <= MAX_REACHED * taken_s * ROUNDING


@pytest.mark.parametrize("gpu", ["H100-SXM", "B200", "GB300"])
def test_long_prompts_with_short_answers_reach_most_of_peak_compute(gpu: str) -> None:
    """The fitted correction alone would exceed the peak."""
    config = ReplicaConfig(builtin_models().get("Llama-3.1-8B"), builtin_gpus().get(gpu))
    rate_rps = highest_rate(config, LOOSE, input_tokens=8000, output_tokens=10).max_rps
    flops = request_work(config.model, input_tokens=8000, output_tokens=10).flops
    assert 0.6 < rate_rps * flops / (config.tflops("bf16") * 1e12) < MAX_REACHED
