"""The decoder of a Hugging Face `config.json`: exact parameter counts, key/value cache, experts.

Counted: input embedding, attention, MLPs and experts, routers with their correction biases, norms, output head.
Not counted: multi-token-prediction layers (`num_nextn_predict_layers`), which only speculation loads; vision and audio
towers beside a nested `text_config`; scales of quantised weights.
"""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from pydantic import AliasChoices, ValidationError

from fleet.documents import Path, dotted, validation_problems
from fleet.errors import DocumentError, Problem
from fleet.huggingface.families import FAMILIES, Family
from fleet.huggingface.keys import HfKeys
from fleet.huggingface.parameters import gated_mlp, grouped_attention, latent_attention, linear

SUPPORTED_MODEL_TYPES = tuple(sorted(FAMILIES))

_NESTED = "text_config"
_WINDOWED_TYPES = ("sliding_attention", "chunked_attention")
_FULL_TYPE = "full_attention"


def decoder_facts(config: Mapping[str, Any], *, name: str) -> dict[str, Any]:
    """The ModelArchitecture fields that the config determines.  DocumentError names every wrong key."""
    text, prefix = _decoder_part(config, name=name)
    family = _family(text, prefix, name=name)
    keys = _keys(text, family, prefix, name=name)
    layers = range(keys.num_hidden_layers)
    sparse_layers = sum(keys.experts > 0 and family.sparse(keys, layer) for layer in layers)
    expert = _expert(keys, family) if sparse_layers else 0
    embedding = keys.vocab_size * keys.hidden_size
    return {
        "family": text["model_type"],
        "layers": len(layers),
        "hidden_size": keys.hidden_size,
        "vocab_size": keys.vocab_size,
        "max_context_tokens": keys.max_position_embeddings or None,
        "attention": _attention_kind(keys, family),
        "heads": keys.num_attention_heads,
        "kv_heads": keys.kv_heads,
        "head_dim": _key_width(keys, family),
        "kv_cache": _kv_cache(keys, family),
        "moe_layers": sparse_layers,
        "experts": keys.experts if sparse_layers else 0,
        "experts_active": keys.experts_per_token if sparse_layers else 0,
        "experts_shared": family.shared_experts(keys) if sparse_layers else 0,
        "expert_parameters": expert,
        "parameters": _outside_layers(keys, embedding) + _inside_layers(keys, family, sparse_layers, expert),
        "embedding_parameters": embedding,
        "tied_embeddings": keys.tie_word_embeddings,
    }


def _decoder_part(config: Mapping[str, Any], *, name: str) -> tuple[Mapping[str, Any], Path]:
    """The mapping that describes the decoder: a multimodal model nests it and may tie its embeddings outside."""
    nested = config.get(_NESTED)
    if nested is None:
        return config, ()
    if not isinstance(nested, Mapping):
        raise DocumentError(name=name, problems=[Problem(_NESTED, "expected a mapping of fields")])
    outer = {key: config[key] for key in ("tie_word_embeddings",) if config.get(key) is not None}
    return {**outer, **nested}, (_NESTED,)


def _family(text: Mapping[str, Any], prefix: Path, *, name: str) -> Family:
    model_type = text.get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        supported = f"must be one of {', '.join(SUPPORTED_MODEL_TYPES)}"
        message = f"{supported}, got {model_type!r}" if "model_type" in text else f"is required: {supported}"
        raise DocumentError(name=name, problems=[Problem(dotted((*prefix, "model_type")), message)])
    return family


def _keys(text: Mapping[str, Any], family: Family, prefix: Path, *, name: str) -> HfKeys:
    """The keys that count, with the family's defaults.  A null means absent unless it overrides a default."""
    given = {key: value for key, value in text.items() if value is not None or key in family.defaults}
    try:
        keys = HfKeys.model_validate({**family.defaults, **given, **family.fixed})
    except ValidationError as error:
        found = validation_problems(error)
    else:
        found = [_missing(field, text["model_type"]) for field in family.required if getattr(keys, field) is None]
        found += [
            (("layer_types", layer), f"must be {_FULL_TYPE}, {' or '.join(_WINDOWED_TYPES)}, got {kind!r}")
            for layer, kind in enumerate(keys.layer_types or ())
            if kind not in (_FULL_TYPE, *_WINDOWED_TYPES)
        ]
        if not found:
            return keys
    raise DocumentError(name=name, problems=[Problem(dotted((*prefix, *path)), message) for path, message in found])


def _missing(field: str, model_type: str) -> tuple[Path, str]:
    alias = HfKeys.model_fields[field].validation_alias
    names = [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [field]
    others = f" (or {', '.join(names[1:])})" if names[1:] else ""
    return (names[0],), f"is required for model_type {model_type!r}{others}"


def _attention_kind(keys: HfKeys, family: Family) -> str:
    if family.latent:
        return "mla"
    if keys.kv_heads == keys.num_attention_heads:
        return "mha"
    return "mqa" if keys.kv_heads == 1 else "gqa"


def _key_width(keys: HfKeys, family: Family) -> int:
    if family.latent:
        return (keys.qk_nope_head_dim or 0) + (keys.qk_rope_head_dim or 0)
    return keys.width_per_head


def _kv_cache(keys: HfKeys, family: Family) -> list[dict[str, Any]]:
    """Layers grouped by window.  Latent attention caches one vector and the rotary key for all heads."""
    if family.latent:
        values = (keys.kv_lora_rank or 0) + (keys.qk_rope_head_dim or 0)
    else:
        values = 2 * keys.kv_heads * keys.width_per_head
    window: int | None = getattr(keys, family.window_key) or None
    windows = [
        window if window and _is_windowed(keys, family, layer) else None for layer in range(keys.num_hidden_layers)
    ]
    grouped = groupby(sorted(windows, key=lambda tokens: tokens or 0))
    return [
        {"layers": len(list(same)), "values_per_token": values, "window_tokens": tokens} for tokens, same in grouped
    ]


def _is_windowed(keys: HfKeys, family: Family, layer: int) -> bool:
    if keys.layer_types:
        return keys.layer_types[layer] in _WINDOWED_TYPES
    return family.windowed(keys, layer)


def _outside_layers(keys: HfKeys, embedding: int) -> int:
    head = 0 if keys.tie_word_embeddings else embedding
    return embedding + head + keys.hidden_size  # the last is the final norm


def _inside_layers(keys: HfKeys, family: Family, sparse_layers: int, expert: int) -> int:
    hidden = keys.hidden_size
    every_layer = _attention(keys, family) + family.block_norms * hidden
    dense_size: int = getattr(keys, family.dense_size_key) or keys.intermediate_size
    dense = gated_mlp(hidden=hidden, intermediate=dense_size, bias=keys.mlp_bias)
    router = linear(hidden, keys.experts, bias=family.router_bias)
    sparse = router + family.shared(keys) + keys.experts * expert if sparse_layers else 0
    dense_layers = keys.num_hidden_layers - sparse_layers
    return keys.num_hidden_layers * every_layer + dense_layers * dense + sparse_layers * sparse


def _expert(keys: HfKeys, family: Family) -> int:
    size: int = getattr(keys, family.expert_size_key) or keys.intermediate_size
    return gated_mlp(hidden=keys.hidden_size, intermediate=size, bias=family.expert_bias)


def _attention(keys: HfKeys, family: Family) -> int:
    if family.latent:
        return latent_attention(
            hidden=keys.hidden_size,
            heads=keys.num_attention_heads,
            query_rank=keys.q_lora_rank,
            kv_rank=keys.kv_lora_rank or 0,
            nope_dim=keys.qk_nope_head_dim or 0,
            rope_dim=keys.qk_rope_head_dim or 0,
            value_dim=keys.v_head_dim or 0,
            bias=keys.attention_bias,
        )
    projections = grouped_attention(
        hidden=keys.hidden_size,
        heads=keys.num_attention_heads,
        kv_heads=keys.kv_heads,
        head_dim=keys.width_per_head,
        qkv_bias=keys.attention_bias,
        output_bias=keys.attention_bias and family.output_bias,
    )
    return projections + _query_key_norms(keys, family) + (keys.num_attention_heads if family.sinks else 0)


def _query_key_norms(keys: HfKeys, family: Family) -> int:
    if family.qk_norm == "none" or (family.qk_norm_by_key and not keys.use_qk_norm):
        return 0
    heads_normed = 2 if family.qk_norm == "per_head" else keys.num_attention_heads + keys.kv_heads
    return heads_normed * keys.width_per_head
