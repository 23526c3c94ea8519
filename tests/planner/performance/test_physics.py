"""The roofline: properties that hold for any coefficients."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner.performance.closed_loop import Split, closed_loop, soft_min
from planner.performance.coefficients import Reached
from planner.performance.config import ReplicaConfig
from planner.performance.hardware_demand import Array, demands
from planner.performance.step_time import decode_s, prompt_work_s

NOTHING = 1e-12
PERFECT = Reached(
    weights=1, experts=1, cache=1, compute=1, expert_compute=1, attention_compute=1, link=1,
    layer_s=NOTHING, moe_layer_s=NOTHING, collective_s=NOTHING, sequence_s=NOTHING, request_s=NOTHING,
)  # fmt: skip
DENSE = ReplicaConfig(builtin_models().get("Llama-3.1-8B"), builtin_gpus().get("H100-SXM"))
MIXTURE = ReplicaConfig(builtin_models().get("Mixtral-8x7B"), builtin_gpus().get("H200-SXM"))


def one(value: float) -> Array:
    return np.array([value])


def step(config: ReplicaConfig, batch: float, *, tokens: int = 2) -> float:
    return float(decode_s(demands(config, sizes=[(1, tokens)]), PERFECT, one(batch)).item())


def test_a_decode_step_reads_all_weights_of_a_dense_model() -> None:
    """7.5e9 parameters beside the input embedding, two bytes each, over 3.35e12 bytes a second."""
    assert step(DENSE, 1) == pytest.approx(2 * 7.5e9 / 3.35e12, rel=0.01)


def test_prompt_operations_match_the_hand_computed_count() -> None:
    work_s = prompt_work_s(demands(DENSE, sizes=[(4000, 1)]), PERFECT).item()
    linear_flops, pair_flops = 2 * 6.98e9 * 4000, 4 * 32 * 4096 * 4000**2 / 2
    assert work_s == pytest.approx((linear_flops + pair_flops) / 989.5e12, rel=0.01)


def test_a_mixture_reads_few_experts_for_one_token_and_all_for_many() -> None:
    model = MIXTURE.model
    few, many = (step(MIXTURE, batch) * 4.8e12 for batch in (1, 64))
    assert few == pytest.approx(2 * model.matmul_parameters, rel=0.01)
    assert many == pytest.approx(2 * (model.parameters - model.embedding_parameters), rel=0.02)


def test_the_cache_is_read_once_per_sequence() -> None:
    longer_s = step(DENSE, 8, tokens=20_000) - step(DENSE, 8, tokens=10_000)
    assert longer_s == pytest.approx(8 * 5000 * 131_072 / 3.35e12, rel=0.01)


def test_two_gpus_halve_the_memory_traffic_and_add_link_traffic() -> None:
    two = replace(DENSE, tensor_parallel=2)
    assert 0.5 * step(DENSE, 1) < step(two, 1) < 0.51 * step(DENSE, 1)
    slow_link = DENSE.gpu.model_copy(update={"link_gb_per_s": 10.0})
    assert step(replace(two, gpu=slow_link), 128) > 1.5 * step(two, 128)


def test_pipeline_stages_share_arithmetic_but_not_memory_time() -> None:
    two = replace(DENSE, pipeline_parallel=2)
    assert step(two, 1) == pytest.approx(step(DENSE, 1), rel=1e-4)
    assert step(two, 4096) < 0.6 * step(DENSE, 4096)


def test_a_lower_clock_slows_arithmetic_and_not_memory() -> None:
    slow = replace(DENSE, clock=0.5)
    assert step(slow, 1) == pytest.approx(step(DENSE, 1))
    assert step(slow, 4096) > 1.8 * step(DENSE, 4096)


def test_expert_imbalance_slows_only_expert_parallel_layouts() -> None:
    spread = replace(MIXTURE, tensor_parallel=2, expert_parallel=2)
    uneven = replace(spread, expert_imbalance=1.5)
    dense_s = step(replace(DENSE, expert_imbalance=1.5), 1)
    assert step(uneven, 4096) > 1.3 * step(spread, 4096)
    assert dense_s == step(DENSE, 1)


def test_expert_imbalance_adds_no_memory_traffic() -> None:
    spread = replace(MIXTURE, tensor_parallel=2, expert_parallel=2)
    assert step(replace(spread, expert_imbalance=1.5), 4) == step(spread, 4)


def test_weight_only_quantisation_speeds_up_only_memory_traffic() -> None:
    packed = replace(DENSE, precision="int4-wo")
    assert step(packed, 1) < 0.5 * step(DENSE, 1)
    assert step(packed, 4096) == pytest.approx(step(DENSE, 4096), rel=0.01)


def test_the_closed_loop_satisfies_littles_law_and_the_compute_limit() -> None:
    demand = demands(DENSE, sizes=[(1000, 250)])
    times = closed_loop(demand, PERFECT, concurrency=one(64))
    cycle_s = times.ttft_s + 250 * times.tpot_s
    assert times.batch.item() <= 64
    assert 64 / cycle_s.item() * 1250 * 2 * DENSE.model.matmul_parameters < 989.5e12 * 1.01


def test_requests_beyond_the_cache_wait() -> None:
    tight = ReplicaConfig(builtin_models().get("Llama-3.1-70B"), DENSE.gpu, precision="fp8", tensor_parallel=2)
    demand = demands(tight, sizes=[(8000, 1000)])
    held = demand.sequences.item()
    inside, beyond = (closed_loop(demand, PERFECT, concurrency=one(held * times)) for times in (0.5, 3.0))
    assert beyond.batch.item() <= held
    assert beyond.ttft_s.item() > beyond.tpot_s.item() * 1000
    assert inside.ttft_s.item() < inside.tpot_s.item() * 1000


def test_separate_prefill_replicas_do_not_slow_decoding() -> None:
    demand = demands(DENSE, sizes=[(8000, 250)])
    together = closed_loop(demand, PERFECT, concurrency=one(32))
    apart = closed_loop(demand, PERFECT, concurrency=one(32), split=Split(demand, one(1), one(1)))
    assert apart.tpot_s.item() < 0.7 * together.tpot_s.item()


def test_speculative_runs_take_less_time_per_token() -> None:
    demand = demands(DENSE, sizes=[(10, 1000)])
    plain, guessing = (closed_loop(demand, PERFECT, concurrency=one(1), speculative=on) for on in (0.0, 1.0))
    assert guessing.tpot_s.item() == pytest.approx(plain.tpot_s.item() / PERFECT.speculation, rel=0.01)


@given(st.floats(1, 1000), st.floats(1, 1000))
def test_the_soft_minimum_is_below_both_arguments(one_side: float, other: float) -> None:
    found = soft_min(one(one_side), one(other)).item()
    assert 0.89 * min(one_side, other) <= found <= min(one_side, other)


@given(st.floats(1, 400), st.floats(1.01, 3), st.integers(1, 16_000), st.integers(2, 4000))
def test_more_concurrency_never_lowers_the_time_per_token(
    concurrency: float, factor: float, input_tokens: int, output_tokens: int
) -> None:
    demand = demands(DENSE, sizes=[(input_tokens, output_tokens)])
    few, many = (closed_loop(demand, Reached(), concurrency=one(concurrency * times)) for times in (1, factor))
    assert many.tpot_s.item() >= few.tpot_s.item() * (1 - 1e-3)
