"""Memory of weights and cache, and the configurations that fit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fleet.gpus import builtin_gpus
from fleet.models import builtin_models
from planner.performance.config import ReplicaConfig
from planner.performance.kv_memory import cache_sequences, cache_tokens, cached_bytes, misfit, misfits


def config(model_name: str = "Llama-3.1-8B", gpu_name: str = "H100-SXM", **rest: Any) -> ReplicaConfig:
    plain = ReplicaConfig(builtin_models().get(model_name), builtin_gpus().get(gpu_name))
    return replace(plain, **rest)


def test_weights_take_two_bytes_per_published_parameter() -> None:
    assert config().weight_bytes_per_gpu == pytest.approx(2 * 8_030_261_248)


def test_8_bit_precision_leaves_embedding_and_head_unquantised() -> None:
    embeddings = 2 * 128256 * 4096
    assert config(precision="fp8").weight_bytes_per_gpu == pytest.approx(8_030_261_248 + embeddings)


def test_4_bit_mixtures_quantise_only_their_experts() -> None:
    model = builtin_models().get("Mixtral-8x7B")
    outside = model.parameters - model.routed_parameters
    weights = config("Mixtral-8x7B", precision="int4-wo").weight_bytes_per_gpu
    assert weights == pytest.approx(2 * outside + 0.5156 * model.routed_parameters)


def test_every_kind_of_parallelism_divides_the_weights_per_gpu() -> None:
    whole = config("Mixtral-8x7B").weight_bytes_per_gpu
    assert config("Mixtral-8x7B", tensor_parallel=4).weight_bytes_per_gpu == pytest.approx(whole / 4)
    assert config("Mixtral-8x7B", pipeline_parallel=2).weight_bytes_per_gpu == pytest.approx(whole / 2)
    ranks = config("Mixtral-8x7B", attention_data_parallel=4, expert_parallel=4)
    experts = 2 * builtin_models().get("Mixtral-8x7B").routed_parameters
    assert ranks.weight_bytes_per_gpu == pytest.approx(whole - experts + experts / 4)


def test_latent_attention_caches_the_same_bytes_at_any_tensor_parallelism() -> None:
    one, eight = (config("DeepSeek-V3", "B300", precision="fp8", tensor_parallel=split) for split in (1, 8))
    assert cached_bytes(one, 1000) == cached_bytes(eight, 1000)
    ranks = replace(eight, tensor_parallel=1, attention_data_parallel=8, expert_parallel=8)
    assert cache_sequences(ranks, 1000) > 4 * cache_sequences(eight, 1000)


def test_grouped_heads_are_split_down_to_one_per_gpu() -> None:
    grouped = config("Qwen3-235B-A22B", "B300", precision="fp8", tensor_parallel=4)  # four key/value heads
    split_further = replace(grouped, tensor_parallel=8)
    free = [each.gpu.memory_bytes * 0.9 - 4e9 - each.weight_bytes_per_gpu for each in (grouped, split_further)]
    ratio = cache_sequences(split_further, 1000) / cache_sequences(grouped, 1000)
    assert ratio == pytest.approx(free[1] / free[0])


def test_a_sliding_window_bounds_the_cache_of_a_long_sequence() -> None:
    windowed = config("Mistral-7B", "H100-SXM")
    assert cached_bytes(windowed, 8192) == cached_bytes(windowed, 4096)
    assert cache_tokens(windowed, 8192) == pytest.approx(2 * cache_tokens(windowed, 4096), rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": builtin_gpus().get("T4")}, "no arithmetic for bf16"),
        ({"gpu": builtin_gpus().get("A100-80GB-SXM"), "kv_precision": "fp8"}, "no fp8 cache"),
        ({"gpu": builtin_gpus().get("L4"), "tensor_parallel": 2}, "fast link joins 1"),
        ({"tensor_parallel": 3}, "32 heads do not split into 3"),
        ({"pipeline_parallel": 64}, "32 layers do not split into 64"),
        ({"model": builtin_models().get("Llama-3.1-405B")}, "GB of each GPU in bf16"),
    ],
)
def test_a_misfit_has_a_reason(changes: dict[str, Any], reason: str) -> None:
    found = misfit(config(**changes), 1000)
    assert found is not None
    assert reason in found


def test_a_request_longer_than_the_context_does_not_fit() -> None:
    assert misfit(config("Llama-2-7B"), 4096) is None
    assert "exceed the model's context of 4,096" in (misfit(config("Llama-2-7B"), 4097) or "")


def test_misfits_of_several_lengths_match_single_calls() -> None:
    lengths = [100, 4096, 4097, 50_000]
    for each in (config("Llama-2-7B"), config("Llama-2-7B", "T4"), config("Llama-2-70B", "H200-SXM")):
        assert misfits(each, lengths) == [misfit(each, length) for length in lengths]


def test_array_lengths_match_single_lengths() -> None:
    lengths = np.array([10.0, 5000.0])
    single = [cache_sequences(config("Mistral-7B"), length) for length in lengths]
    assert cache_sequences(config("Mistral-7B"), lengths) == pytest.approx(single)
