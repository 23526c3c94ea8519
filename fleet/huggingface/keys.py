"""The keys of a Hugging Face `config.json` that determine a decoder's shape: one model for all families.

`fleet.huggingface.families` lists the keys of each family and its defaults.  The reader ignores the many other keys of
a real file (token ids, dropout, rotary scaling, quantisation), because they do not change any count.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import AliasChoices, ConfigDict, Field, model_validator

from fleet.documents import Frozen, Path, RuleError

MAX_LAYERS = 10_000  # the code visits layers one by one; the deepest published models have a few hundred

Size = Annotated[int, Field(gt=0, le=100_000_000)]
SizeOrZero = Annotated[int, Field(ge=0, le=100_000_000)]  # files write 0 for a part that the model does not have
Layers = Annotated[int, Field(gt=0, le=MAX_LAYERS)]


def _keys(*keys: str) -> Any:
    return Field(validation_alias=AliasChoices(*keys))


class HfKeys(Frozen):
    """The shape of a decoder, by Hugging Face's key names."""

    model_config = ConfigDict(extra="ignore", populate_by_name=False)

    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Layers
    num_attention_heads: Size
    num_key_value_heads: Size | None = None  # absent: one per query head
    head_dim: Size | None = None  # absent: hidden_size / num_attention_heads
    vocab_size: Size
    max_position_embeddings: SizeOrZero | None = None
    tie_word_embeddings: bool = False
    attention_bias: Annotated[bool, _keys("qkv_bias", "attention_bias")] = False
    mlp_bias: bool = False
    use_qk_norm: bool = False

    # Latent attention
    q_lora_rank: Size | None = None
    kv_lora_rank: Size | None = None
    qk_nope_head_dim: Size | None = None
    qk_rope_head_dim: Size | None = None
    v_head_dim: Size | None = None

    # Layers with a sliding window
    layer_types: list[str] | None = None
    sliding_window: SizeOrZero | None = None
    sliding_window_pattern: Size = 6
    use_sliding_window: bool = False
    max_window_layers: SizeOrZero = 0
    attention_chunk_size: SizeOrZero | None = None
    no_rope_layers: list[SizeOrZero] | None = None
    no_rope_layer_interval: Size = 4

    # Experts
    routed_experts: Annotated[SizeOrZero | None, _keys("n_routed_experts", "num_experts", "num_local_experts")] = None
    num_experts_per_tok: Annotated[SizeOrZero | None, _keys("num_experts_per_tok", "experts_per_token")] = None
    n_shared_experts: SizeOrZero | None = None
    moe_intermediate_size: SizeOrZero | None = None
    shared_expert_intermediate_size: SizeOrZero | None = None
    intermediate_size_mlp: SizeOrZero | None = None
    first_k_dense_replace: SizeOrZero = 0
    moe_layer_freq: Size = 1
    decoder_sparse_step: Size = 1
    mlp_only_layers: list[SizeOrZero] | None = None
    interleave_moe_layer_step: Size = 1
    moe_layers: list[SizeOrZero] | None = None

    @property
    def experts(self) -> int:
        return self.routed_experts or 0

    @property
    def experts_per_token(self) -> int:
        return self.num_experts_per_tok or 0

    @property
    def kv_heads(self) -> int:
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def width_per_head(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        RuleError.raise_for(_violations(self))
        return self


def _violations(keys: HfKeys) -> Iterator[tuple[Path, str]]:
    heads = keys.num_attention_heads
    if keys.head_dim is None and keys.hidden_size % heads:
        yield ("num_attention_heads",), f"must divide hidden_size ({keys.hidden_size}) without head_dim, got {heads}"
    if heads % keys.kv_heads:
        yield ("num_key_value_heads",), f"must divide num_attention_heads ({heads}), got {keys.kv_heads}"
    if keys.experts and not 1 <= keys.experts_per_token <= keys.experts:
        yield ("num_experts_per_tok",), f"must be from 1 to the experts ({keys.experts}), got {keys.experts_per_token}"
    for key, per_layer in (("layer_types", keys.layer_types), ("no_rope_layers", keys.no_rope_layers)):
        if per_layer and len(per_layer) != keys.num_hidden_layers:
            length = f"num_hidden_layers ({keys.num_hidden_layers})"
            yield (key,), f"must have {length} entries, has {len(per_layer)}"
