"""The demand of a replica's steps on its hardware, in seconds at the rates of the data sheet.

Operators and counts follow LLM-Viewer (arXiv 2402.16363): a matrix product moves its weights once per step and does two
operations per parameter and token; decoding reads the cache; attention over a prompt does four operations per head,
channel and pair of tokens; tensor parallelism sums activations twice per layer (Megatron-LM, arXiv 1909.08053) and
experts across GPUs exchange tokens.  `planner.performance.coefficients` has the share of those rates that is reached.

Every field is an array that broadcasts with the others: over measured points in a fit, over request sizes in a plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from planner.performance.config import SIXTEEN_BIT_BYTES, ReplicaConfig
from planner.performance.kv_memory import MEMORY_USABLE, cache_sequences, sequence_bytes_per_gpu

Array = npt.NDArray[np.float64]

MAX_SEQUENCES = 1e9  # of a model without a cache


@dataclass(frozen=True, slots=True)
class Demands:
    """The demand of one replica for requests of one size; times at the data sheet's rates."""

    layers: Array
    moe_layers: Array
    hops: Array  # binary logarithm of the GPUs that a collective joins
    weights_s: Array  # reading the weights that every token uses
    experts_s: Array  # reading all routed experts, redundant copies included
    expert_share: Array  # chance that a token picks a given copy of a routed expert
    token_s: Array  # arithmetic of one token beside the routed experts
    expert_token_s: Array  # arithmetic of one token in its experts
    traffic_s: Array  # moving one token's activations between GPUs
    cache_s: Array  # reading the cache of one sequence halfway through its output
    attention_s: Array  # of one prompt with itself
    head_s: Array  # arithmetic of one token in the output head, in 16 bit
    reach_s: Array  # arithmetic of one decoded token's attention, halfway through its output
    latent: Array  # 1 with multi-head latent attention
    sequences: Array  # that fit beside the weights, halfway through their output
    input_tokens: Array
    output_tokens: Array


def demands(
    config: ReplicaConfig, *, sizes: Sequence[tuple[int, int]], memory_usable: float = MEMORY_USABLE
) -> Demands:
    model, gpu = config.model, config.gpu
    bytes_per_s = gpu.bandwidth_gb_per_s * 1e9
    inputs, outputs = np.array(sizes, dtype=np.float64).T
    halfway = inputs + outputs // 2
    imbalance = config.expert_imbalance if config.expert_parallel > 1 else 1.0
    routed = 2 * model.moe_layers * model.experts_active * model.expert_parameters
    return Demands(
        layers=_one(model.layers),
        moe_layers=_one(model.moe_layers),
        hops=np.log2(_one(config.stage_gpus)),
        weights_s=_one(config.base_bytes - _idle_embedding_bytes(config)) / config.tensor_parallel / bytes_per_s,
        experts_s=_one(config.expert_bytes) / config.stage_gpus / bytes_per_s,
        expert_share=_one(_expert_share(config)),
        token_s=_compute_s(config, 2 * config.base_parameters, peak_tflops=config.tflops(config.base_arithmetic)),
        expert_token_s=_compute_s(config, routed * imbalance, peak_tflops=config.tflops(config.arithmetic)),
        traffic_s=_one(_traffic_bytes(config, imbalance) / config.pipeline_parallel / (gpu.link_gb_per_s * 1e9)),
        cache_s=_cache_s(config, halfway),
        attention_s=_attention_s(config, inputs),
        head_s=_compute_s(config, 2 * model.embedding_parameters, peak_tflops=_attention_tflops(config)),
        reach_s=_reach_s(config, halfway),
        latent=_one(model.attention == "mla"),
        sequences=np.clip(cache_sequences(config, halfway, usable=memory_usable), 1.0, MAX_SEQUENCES),
        input_tokens=inputs,
        output_tokens=outputs,
    )


def stacked(parts: Sequence[Demands]) -> Demands:
    names = [field.name for field in fields(Demands)]
    return Demands(**{name: np.concatenate([getattr(part, name).reshape(-1) for part in parts]) for name in names})


def _one(value: float) -> Array:
    return np.array([float(value)])


def _idle_embedding_bytes(config: ReplicaConfig) -> float:
    """A step reads only rows of the input embedding; a tied embedding is read whole as the output head."""
    return 0.0 if config.model.tied_embeddings else config.model.embedding_parameters * SIXTEEN_BIT_BYTES


def _expert_share(config: ReplicaConfig) -> float:
    """Per token of the replica and copy of an expert: each stage processes one part of a step's tokens at a time."""
    if not config.model.experts:
        return 0.0
    picked = config.model.experts_active / config.model.experts / config.copies_per_expert
    return float(1 - (1 - picked) ** (1 / config.pipeline_parallel))


def _compute_s(config: ReplicaConfig, flops: float, *, peak_tflops: float) -> Array:
    if flops == 0:
        return _one(0.0)
    return _one(flops / config.gpus / (peak_tflops * 1e12)) if peak_tflops else _one(np.inf)


def _traffic_bytes(config: ReplicaConfig, imbalance: float) -> float:
    """Per token and GPU: two ring all-reduces a layer, and transfers to the experts' GPUs where ranks differ.

    The GPU with the most tokens decides the exchange, as it does the arithmetic; every GPU reads its weights once.
    """
    model, split = config.model, config.tensor_parallel
    reduced = 2 * model.layers * 2 * (split - 1) / split / config.attention_data_parallel
    sent = 0.0
    if config.attention_data_parallel > 1:
        sent = 2 * model.moe_layers * model.experts_active * (config.stage_gpus - 1) / config.stage_gpus**2
        sent *= imbalance
    return (reduced + sent) * model.hidden_size * SIXTEEN_BIT_BYTES


def _cache_s(config: ReplicaConfig, tokens: Array) -> Array:
    """A rank reads only its own sequences, so over all sequences the ranks share the time."""
    bytes_per_s = config.gpu.bandwidth_gb_per_s * 1e9
    return np.asarray(sequence_bytes_per_gpu(config, tokens) / config.attention_data_parallel / bytes_per_s)


def _attention_s(config: ReplicaConfig, tokens: Array) -> Array:
    flops = 4 * config.model.heads * config.model.head_dim * attended_pairs(config, tokens)
    return flops / config.gpus / (_attention_tflops(config) * 1e12)


def _reach_s(config: ReplicaConfig, tokens: Array) -> Array:
    reached = np.zeros_like(tokens)
    for part in config.model.kv_cache:
        reached = reached + part.layers * np.minimum(tokens, part.window_tokens or np.inf)
    flops = 4 * config.model.heads * config.model.head_dim * reached
    return flops / config.gpus / (_attention_tflops(config) * 1e12)


def _attention_tflops(config: ReplicaConfig) -> float:
    return config.tflops("bf16" if "bf16" in config.gpu.dense_tflops else "fp16")


def attended_pairs(config: ReplicaConfig, tokens: Array) -> Array:
    """Pairs of a prompt's tokens that attend to each other, summed over layers; a window bounds them."""
    pairs = np.zeros_like(tokens)
    for part in config.model.kv_cache:
        reach = tokens / 2 if part.window_tokens is None else np.minimum(tokens / 2, part.window_tokens)
        pairs = pairs + part.layers * reach * tokens
    return pairs
