"""Per architecture, the additions to the keys of its `config.json`: defaults, biases, norms, windows, experts.

Source: the configuration and modelling classes of transformers 5.23 (github.com/huggingface/transformers), and the
checkpoints' own `modeling_deepseek.py` for `moe_layer_freq`.  This module has only what changes a count.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fleet.huggingface.keys import HfKeys
from fleet.huggingface.parameters import gated_mlp

LayerRule = Callable[[HfKeys, int], bool]  # is this layer, counted from 0, one of them?


def _never(_keys: HfKeys, _layer: int) -> bool:
    return False


def _always(_keys: HfKeys, _layer: int) -> bool:
    return True


def _if_windowed(keys: HfKeys, _layer: int) -> bool:
    return bool(keys.sliding_window)


def _if_switched_on(keys: HfKeys, _layer: int) -> bool:
    return keys.use_sliding_window and bool(keys.sliding_window)


def _from_window_layer(keys: HfKeys, layer: int) -> bool:
    return _if_switched_on(keys, layer) and layer >= keys.max_window_layers


def _alternating_until_window_layer(keys: HfKeys, layer: int) -> bool:
    return _if_switched_on(keys, layer) and layer % 2 == 0 and layer < keys.max_window_layers


def _alternating(_keys: HfKeys, layer: int) -> bool:
    return layer % 2 == 0


def _all_but_each_nth(keys: HfKeys, layer: int) -> bool:
    return (layer + 1) % keys.sliding_window_pattern != 0


def _rotary_layers(keys: HfKeys, layer: int) -> bool:
    if keys.no_rope_layers:
        return keys.no_rope_layers[layer] != 0
    return (layer + 1) % keys.no_rope_layer_interval != 0


def _after_dense_head(keys: HfKeys, layer: int) -> bool:
    return layer >= keys.first_k_dense_replace and layer % keys.moe_layer_freq == 0


def _each_sparse_step(keys: HfKeys, layer: int) -> bool:
    return layer not in (keys.mlp_only_layers or ()) and (layer + 1) % keys.decoder_sparse_step == 0


def _interleaved(keys: HfKeys, layer: int) -> bool:
    if keys.moe_layers is not None:
        return layer in keys.moe_layers
    return (layer + 1) % keys.interleave_moe_layer_step == 0


def _no_shared(_keys: HfKeys) -> int:
    return 0


def _shared_as_routed(keys: HfKeys) -> int:
    """Shared experts as one MLP, `n_shared_experts` times as wide as a routed one."""
    width = (keys.n_shared_experts or 0) * (keys.moe_intermediate_size or 0)
    return gated_mlp(hidden=keys.hidden_size, intermediate=width) if width else 0


def _shared_with_gate(keys: HfKeys) -> int:
    """One shared expert behind a sigmoid gate (Qwen 1.5 and 2 MoE)."""
    width = keys.shared_expert_intermediate_size or 0
    return gated_mlp(hidden=keys.hidden_size, intermediate=width) + keys.hidden_size


def _shared_like_an_expert(keys: HfKeys) -> int:
    return gated_mlp(hidden=keys.hidden_size, intermediate=keys.intermediate_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    defaults: Mapping[str, Any] = field(default_factory=dict)  # for keys that the file leaves out
    fixed: Mapping[str, Any] = field(default_factory=dict)  # override the file
    required: tuple[str, ...] = ()  # fields of HfKeys, beyond what every family requires

    latent: bool = False
    output_bias: bool = True  # the output projection follows `attention_bias`
    qk_norm: Literal["none", "per_head", "whole"] = "none"
    qk_norm_by_key: bool = False  # only if `use_qk_norm`
    sinks: bool = False  # one learned logit per head
    block_norms: int = 2

    windowed: LayerRule = _never
    window_key: str = "sliding_window"

    sparse: LayerRule = _never
    expert_size_key: str = "intermediate_size"
    dense_size_key: str = "intermediate_size"
    expert_bias: bool = False
    router_bias: bool = False  # or a correction per expert, which the checkpoint stores alike
    shared: Callable[[HfKeys], int] = _no_shared  # parameters per sparse layer
    shared_experts: Callable[[HfKeys], int] = _no_shared  # how many


_UNBIASED = {"attention_bias": False, "qkv_bias": False}
_QWEN3 = Family(qk_norm="per_head", windowed=_from_window_layer, defaults={"head_dim": 128})
_QWEN3_MOE = Family(
    qk_norm="per_head",
    windowed=_if_switched_on,
    sparse=_each_sparse_step,
    expert_size_key="moe_intermediate_size",
    required=("routed_experts", "num_experts_per_tok", "moe_intermediate_size"),
)
_DEEPSEEK_V2 = Family(
    latent=True,
    sparse=_after_dense_head,
    expert_size_key="moe_intermediate_size",
    shared=_shared_as_routed,
    shared_experts=lambda keys: keys.n_shared_experts or 0,
    required=("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
)
_DEEPSEEK_V3 = replace(_DEEPSEEK_V2, router_bias=True)
_GEMMA3 = Family(
    qk_norm="per_head",
    block_norms=4,
    windowed=_all_but_each_nth,
    defaults={
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
    },
)

FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "mistral": Family(
        fixed=_UNBIASED, windowed=_if_windowed, defaults={"num_key_value_heads": 8, "sliding_window": 4096}
    ),
    "mixtral": Family(
        fixed=_UNBIASED,
        windowed=_if_windowed,
        sparse=_always,
        defaults={"num_key_value_heads": 8},
        required=("routed_experts", "num_experts_per_tok"),
    ),
    "qwen2": Family(fixed={"attention_bias": True, "qkv_bias": True}, output_bias=False, windowed=_from_window_layer),
    "qwen2_moe": Family(
        output_bias=False,
        windowed=_alternating_until_window_layer,
        sparse=_each_sparse_step,
        expert_size_key="moe_intermediate_size",
        shared=_shared_with_gate,
        shared_experts=lambda _keys: 1,
        defaults={"qkv_bias": True, "max_window_layers": 28},
        required=("routed_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"),
    ),
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "deepseek_v2": _DEEPSEEK_V2,
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "gemma": Family(defaults={"head_dim": 256, "tie_word_embeddings": True}),
    "gemma2": Family(
        block_norms=4,
        windowed=_alternating,
        defaults={"head_dim": 256, "sliding_window": 4096, "tie_word_embeddings": True},
    ),
    "gemma3_text": _GEMMA3,
    "phi3": Family(fixed=_UNBIASED, windowed=_if_windowed),
    "gpt_oss": Family(
        sinks=True,
        windowed=_alternating,
        sparse=_always,
        expert_bias=True,
        router_bias=True,
        defaults={"head_dim": 64, "attention_bias": True, "sliding_window": 128},
        required=("routed_experts", "num_experts_per_tok"),
    ),
    "glm4_moe": Family(
        output_bias=False,
        qk_norm="per_head",
        qk_norm_by_key=True,
        sparse=_after_dense_head,
        expert_size_key="moe_intermediate_size",
        router_bias=True,
        shared=_shared_as_routed,
        shared_experts=lambda keys: keys.n_shared_experts or 0,
        required=("routed_experts", "num_experts_per_tok", "moe_intermediate_size"),
    ),
    "llama4_text": Family(
        windowed=_rotary_layers,
        window_key="attention_chunk_size",
        sparse=_interleaved,
        dense_size_key="intermediate_size_mlp",
        shared=_shared_like_an_expert,
        shared_experts=lambda _keys: 1,
        defaults={"head_dim": 128, "attention_chunk_size": 8192},
        required=("routed_experts", "num_experts_per_tok", "intermediate_size_mlp"),
    ),
    "minimax_m2": Family(
        fixed=_UNBIASED,
        qk_norm="whole",
        sparse=_always,
        router_bias=True,
        required=("routed_experts", "num_experts_per_tok"),
    ),
}
