"""Hugging Face configs, and an independent parameter count from the tensors of their checkpoints."""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import pytest
from hypothesis import strategies as st

from fleet.errors import DocumentError
from fleet.models import ModelArchitecture, model_from_hf_config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
MOE = {"num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


def read(config: Mapping[str, Any], **changes: Any) -> ModelArchitecture:
    """The architecture of a config with changes.  A value of ... removes the key."""
    changed = {key: value for key, value in {**config, **changes}.items() if value is not ...}
    return model_from_hf_config(changed, name="model")


def refused(config: Mapping[str, Any], **changes: Any) -> str:
    with pytest.raises(DocumentError) as raised:
        read(config, **changes)
    return str(raised.value)


def windows(model: ModelArchitecture) -> dict[int | None, int]:
    """The number of layers per attention window."""
    return {part.window_tokens: part.layers for part in model.kv_cache}


# The tensors of two checkpoints with their stored names and shapes, independent of the code under test.


def llama_tensors(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, middle, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    width = hidden // config["num_attention_heads"]
    yield "model.embed_tokens.weight", (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        stem = f"model.layers.{layer}"
        yield f"{stem}.input_layernorm.weight", (hidden,)
        yield f"{stem}.post_attention_layernorm.weight", (hidden,)
        yield f"{stem}.self_attn.q_proj.weight", (hidden, hidden)
        yield f"{stem}.self_attn.k_proj.weight", (config["num_key_value_heads"] * width, hidden)
        yield f"{stem}.self_attn.v_proj.weight", (config["num_key_value_heads"] * width, hidden)
        yield f"{stem}.self_attn.o_proj.weight", (hidden, hidden)
        yield f"{stem}.mlp.gate_proj.weight", (middle, hidden)
        yield f"{stem}.mlp.up_proj.weight", (middle, hidden)
        yield f"{stem}.mlp.down_proj.weight", (hidden, middle)
    yield "model.norm.weight", (hidden,)
    if not config.get("tie_word_embeddings"):
        yield "lm_head.weight", (vocab, hidden)


def deepseek_tensors(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, heads, vocab = config["hidden_size"], config["num_attention_heads"], config["vocab_size"]
    query_rank, kv_rank = config["q_lora_rank"], config["kv_lora_rank"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    yield "model.embed_tokens.weight", (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        stem = f"model.layers.{layer}"
        yield f"{stem}.input_layernorm.weight", (hidden,)
        yield f"{stem}.post_attention_layernorm.weight", (hidden,)
        if query_rank is None:
            yield f"{stem}.self_attn.q_proj.weight", (heads * (nope + rope), hidden)
        else:
            yield f"{stem}.self_attn.q_a_proj.weight", (query_rank, hidden)
            yield f"{stem}.self_attn.q_a_layernorm.weight", (query_rank,)
            yield f"{stem}.self_attn.q_b_proj.weight", (heads * (nope + rope), query_rank)
        yield f"{stem}.self_attn.kv_a_proj_with_mqa.weight", (kv_rank + rope, hidden)
        yield f"{stem}.self_attn.kv_a_layernorm.weight", (kv_rank,)
        yield f"{stem}.self_attn.kv_b_proj.weight", (heads * (nope + value), kv_rank)
        yield f"{stem}.self_attn.o_proj.weight", (hidden, heads * value)
        yield from deepseek_mlp_tensors(config, layer, f"{stem}.mlp")
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (vocab, hidden)


def deepseek_mlp_tensors(config: Mapping[str, Any], layer: int, stem: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, middle = config["hidden_size"], config["moe_intermediate_size"]
    blocks = {stem: config["intermediate_size"]}
    if layer >= config["first_k_dense_replace"]:
        yield f"{stem}.gate.weight", (config["n_routed_experts"], hidden)
        yield f"{stem}.gate.e_score_correction_bias", (config["n_routed_experts"],)
        blocks = {f"{stem}.experts.{expert}": middle for expert in range(config["n_routed_experts"])}
        blocks[f"{stem}.shared_experts"] = middle * config["n_shared_experts"]
    for block, size in blocks.items():
        yield f"{block}.gate_proj.weight", (size, hidden)
        yield f"{block}.up_proj.weight", (size, hidden)
        yield f"{block}.down_proj.weight", (hidden, size)


def total(tensors: Iterator[tuple[str, tuple[int, ...]]]) -> int:
    return sum(prod(shape) for _name, shape in tensors)


@st.composite
def llama_configs(draw: st.DrawFn) -> dict[str, Any]:
    kv_heads, width = draw(st.integers(1, 8)), draw(st.sampled_from([8, 64, 128]))
    heads = kv_heads * draw(st.integers(1, 8))
    return {
        "model_type": "llama",
        "hidden_size": heads * width,
        "intermediate_size": draw(st.integers(1, 5000)),
        "num_hidden_layers": draw(st.integers(1, 20)),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": draw(st.integers(1, 200_000)),
        "tie_word_embeddings": draw(st.booleans()),
    }


@st.composite
def deepseek_configs(draw: st.DrawFn) -> dict[str, Any]:
    layers, experts = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    small = st.integers(1, 500)
    drawn = {key: draw(small) for key, value in DEEPSEEK.items() if isinstance(value, int)}
    return {
        **drawn,
        "model_type": "deepseek_v3",
        "num_hidden_layers": layers,
        "num_attention_heads": (heads := draw(st.integers(1, 16))),
        "num_key_value_heads": heads,
        "head_dim": 64,
        "n_routed_experts": experts,
        "n_shared_experts": draw(st.integers(0, 3)),
        "num_experts_per_tok": draw(st.integers(1, experts)),
        "first_k_dense_replace": draw(st.integers(0, layers)),
        "q_lora_rank": draw(st.none() | small),
    }
