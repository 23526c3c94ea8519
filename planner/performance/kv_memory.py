"""The memory of a replica: weights per GPU, cached tokens beside them, and the reason why a request may not fit.

Per GPU: weights of attention and dense layers over the tensor-parallel ranks, routed experts over all GPUs of a stage,
both over the stages.  The cache of a sequence is split by key/value heads until each GPU has one; beyond that, and with
latent attention always, several GPUs hold copies (vLLM's and SGLang's rule).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from planner.performance.config import KV_BYTES, ReplicaConfig

Tokens = Any  # a number, or an array of them

MEMORY_USABLE = 0.9  # vLLM's default gpu_memory_utilization
MIN_BYTES = 1e-3  # a model without a cache would hold any number of sequences
RESERVED_BYTES = 4e9  # per GPU: activations, CUDA graphs, buffers of the collectives; as in aiconfigurator's sheets


def cache_shards(config: ReplicaConfig) -> int:
    return 1 if config.model.attention == "mla" else min(config.tensor_parallel, config.model.kv_heads)


def cached_bytes(config: ReplicaConfig, tokens: Tokens) -> Tokens:
    """Cache of one sequence, once; layers with a window keep no more than that."""
    values: Tokens = 0.0
    for part in config.model.kv_cache:
        kept = tokens if part.window_tokens is None else np.minimum(tokens, part.window_tokens)
        values = values + part.layers * part.values_per_token * kept
    return values * KV_BYTES[config.kv_precision]


def sequence_bytes_per_gpu(config: ReplicaConfig, tokens: Tokens) -> Tokens:
    """Cache of one sequence of this length on each GPU of the rank that serves it."""
    return cached_bytes(config, tokens) / cache_shards(config) / config.pipeline_parallel


def free_bytes_per_gpu(config: ReplicaConfig, *, usable: float = MEMORY_USABLE) -> float:
    """Memory left for the cache; negative where the weights alone do not fit."""
    return config.gpu.memory_bytes * usable - RESERVED_BYTES - config.weight_bytes_per_gpu


def cache_sequences(config: ReplicaConfig, tokens: Tokens, *, usable: float = MEMORY_USABLE) -> Tokens:
    """Sequences of this length that fit, over all ranks of attention data parallelism."""
    free_bytes = max(0.0, free_bytes_per_gpu(config, usable=usable)) * config.attention_data_parallel
    return free_bytes / np.maximum(sequence_bytes_per_gpu(config, tokens), MIN_BYTES)


def cache_tokens(config: ReplicaConfig, context_tokens: int) -> int:
    """Cached tokens that fit in sequences of about this length; layers with a window make long ones cheaper."""
    return int(cache_sequences(config, context_tokens) * context_tokens)


def misfits(config: ReplicaConfig, tokens: Sequence[int]) -> list[str | None]:
    """The reason per length, None where it fits: `misfit` for many lengths at once."""
    lengths = np.array(tokens, dtype=np.float64)
    longest = config.model.max_context_tokens
    fits = (cache_sequences(config, lengths) >= 1) & (lengths <= (np.inf if longest is None else longest))
    if _unsupported(config) is not None:
        fits = np.zeros_like(fits)
    return [None if fit else misfit(config, length) for fit, length in zip(fits, tokens, strict=True)]


def misfit(config: ReplicaConfig, tokens: int) -> str | None:
    """Why a single request of this length, prompt and output together, does not fit; None when it does."""
    return _unsupported(config) or _too_long(config, tokens) or _too_big(config, tokens)


def _unsupported(config: ReplicaConfig) -> str | None:
    gpu = config.gpu
    if config.arithmetic is None or config.base_arithmetic is None:
        return f"no arithmetic for {config.precision} weights"
    if config.kv_precision == "fp8" and "fp8" not in gpu.dense_tflops:
        return "no fp8 cache without fp8 arithmetic"
    if config.stage_gpus > gpu.link_domain_gpus:
        return f"its fast link joins {gpu.link_domain_gpus} GPU(s), and collectives over PCIe are not predicted"
    if config.tensor_parallel > config.model.heads or config.model.heads % config.tensor_parallel:
        return f"{config.model.heads} heads do not split into {config.tensor_parallel} parts"
    if config.pipeline_parallel > config.model.layers:
        return f"{config.model.layers} layers do not split into {config.pipeline_parallel} stages"
    return None


def _too_long(config: ReplicaConfig, tokens: int) -> str | None:
    longest = config.model.max_context_tokens
    if longest is not None and tokens > longest:
        return f"{tokens:,} tokens exceed the model's context of {longest:,}"
    return None


def _too_big(config: ReplicaConfig, tokens: int) -> str | None:
    if cache_sequences(config, tokens) >= 1:
        return None
    needed_gb = (config.weight_bytes_per_gpu + sequence_bytes_per_gpu(config, tokens)) / 1e9
    offered_gb = (config.gpu.memory_bytes * MEMORY_USABLE - RESERVED_BYTES) / 1e9
    return f"needs {needed_gb:.1f} GB of each GPU in {config.precision}, each offers {offered_gb:.1f} GB"
