"""The iteration costs of the replay."""

from dataclasses import replace

import numpy as np
import pytest

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner.performance.coefficients import builtin_coefficients
from planner.performance.config import ReplicaConfig
from planner.performance.open_loop import OpenLoop
from planner.performance.rates import open_loop
from planner.performance.step_time import decode_s
from planner.performance.steps import StepCosts, step_costs, step_s

DENSE = ReplicaConfig(builtin_models().get("Llama-3.1-70B"), builtin_gpus().get("H200-SXM"), "fp8", "fp8", 4)
MIXTURE = ReplicaConfig(
    builtin_models().get("DeepSeek-V3"),
    builtin_gpus().get("B200"),
    precision="fp4",
    kv_precision="fp8",
    attention_data_parallel=8,
    expert_parallel=8,
)
SIZE = (2000, 500)


def loop_of(config: ReplicaConfig) -> OpenLoop:
    return open_loop(config, sizes=[SIZE], arrival_cv=1.0, coefficients=builtin_coefficients())


@pytest.mark.parametrize("config", [DENSE, MIXTURE, replace(DENSE, pipeline_parallel=2)])
def test_a_decode_iteration_matches_the_model(config: ReplicaConfig) -> None:
    batch = 32
    costs = step_costs(config, input_tokens=SIZE[0], output_tokens=SIZE[1], batch=batch)
    loop, batches = loop_of(config), np.array([[float(batch)]])
    predicted_s = decode_s(loop.demand, loop.reached, batches, np.exp(loop.corrections(batches)[0]))
    taken_s = step_s(costs, decoding=batch, cached_tokens=batch * (SIZE[0] + SIZE[1] // 2))
    assert taken_s == pytest.approx(predicted_s.item(), rel=1e-6)


@pytest.mark.parametrize("config", [DENSE, MIXTURE])
def test_a_first_token_without_load_matches_the_model(config: ReplicaConfig) -> None:
    """The prediction is rounded up to whole iterations.

    A floor on a busy iteration hides a share of a prompt and slows an iteration without decoding in proportion.
    """
    costs = step_costs(config, input_tokens=SIZE[0], output_tokens=SIZE[1], batch=1)
    loop = loop_of(config)
    reading_s = step_s(costs, decoding=0, cached_tokens=0, prompt_tokens=SIZE[0], pairs=SIZE[0] ** 2 / 2)
    predicted_s = loop.first_token_alone_s.item() * np.exp(loop.corrections(np.ones((1, 1)))[1]).item()
    assert costs.request_s + reading_s == pytest.approx(max(predicted_s, reading_s), rel=1e-6)
    assert reading_s < 1.15 * predicted_s


def test_limits_match_the_replica() -> None:
    costs, ranks = step_costs(DENSE), step_costs(MIXTURE)
    assert costs.chunk_tokens >= costs.max_sequences >= 1
    assert ranks.max_sequences == 8 * costs.max_sequences
    assert costs.cache_tokens * 163_840 / 4 < DENSE.gpu.memory_bytes


COSTS = StepCosts(
    fixed_s=1.0,
    weights_s=8.0,
    experts_s=10.0,
    expert_share=0.5,
    token_s=1.0,
    traffic_s=0.1,
    cached_token_s=0.01,
    pair_s=0.001,
    sequence_s=0.2,
    request_s=0.0,
    cache_tokens=1000,
    max_sequences=64,
    chunk_tokens=64,
    expert_token_s=0.5,
    hidden_share=0.25,
)


def test_few_sequences_are_bound_by_weights_and_many_by_arithmetic() -> None:
    few = step_s(COSTS, decoding=2, cached_tokens=100)
    assert few == pytest.approx(1 + 8 + 7.5 + 2 * 0.3 + 1)
    many = step_s(COSTS, decoding=40, cached_tokens=100)
    assert many == pytest.approx(1 + 40 + 20 + 40 * 0.3 + 1)


def test_a_prompt_beside_decoding_adds_its_unhidden_share() -> None:
    alone = step_s(COSTS, decoding=2, cached_tokens=100)
    beside = step_s(COSTS, decoding=2, cached_tokens=100, prompt_tokens=10, pairs=50)
    assert beside - alone == pytest.approx(0.75 * (10 * 1.6 + 0.05))


def test_a_prompt_alone_takes_the_longer_of_reading_weights_and_computing() -> None:
    short, long = (step_s(COSTS, decoding=0, cached_tokens=0, prompt_tokens=tokens) for tokens in (4.0, 40.0))
    assert short == pytest.approx(1 + 8 + 10 * (1 - 0.5**4) + 0.4)
    assert long == pytest.approx(1 + 40 + 20 + 4)


def test_a_dense_model_reads_no_experts() -> None:
    dense = replace(COSTS, experts_s=0.0, expert_share=0.0, expert_token_s=0.0)
    assert step_s(dense, decoding=2, cached_tokens=0) == pytest.approx(1 + 8 + 0.6)
