"""Parameter counts of a decoder-only transformer, part by part.

The shapes are those of the published checkpoints: attention with grouped key/value heads (Ainslie et al., arXiv
2305.13245), multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1), gated MLPs (Shazeer, arXiv
2002.05202), routed and shared experts.  RMS norms have one weight per channel.  Rotary tables have no parameters.
"""


def linear(inputs: int, outputs: int, *, bias: bool = False) -> int:
    """A matrix, with one bias per output if there are biases."""
    return inputs * outputs + (outputs if bias else 0)


def grouped_attention(
    *, hidden: int, heads: int, kv_heads: int, head_dim: int, qkv_bias: bool = False, output_bias: bool = False
) -> int:
    """Query, key, value and output projections.  One key/value head per query head makes it multi-head attention."""
    query = linear(hidden, heads * head_dim, bias=qkv_bias)
    key_and_value = 2 * linear(hidden, kv_heads * head_dim, bias=qkv_bias)
    output = linear(heads * head_dim, hidden, bias=output_bias)
    return query + key_and_value + output


def latent_attention(
    *,
    hidden: int,
    heads: int,
    query_rank: int | None,
    kv_rank: int,
    nope_dim: int,
    rope_dim: int,
    value_dim: int,
    bias: bool = False,
) -> int:
    """Low-rank query (full rank when `query_rank` is None) and joint low-rank key/value, each rank with its norm."""
    query_out = heads * (nope_dim + rope_dim)
    if query_rank is None:
        query = linear(hidden, query_out)
    else:
        query = linear(hidden, query_rank, bias=bias) + query_rank + linear(query_rank, query_out)
    down = linear(hidden, kv_rank + rope_dim, bias=bias) + kv_rank
    up = linear(kv_rank, heads * (nope_dim + value_dim))
    output = linear(heads * value_dim, hidden, bias=bias)
    return query + down + up + output


def gated_mlp(*, hidden: int, intermediate: int, bias: bool = False) -> int:
    """Gate, up and down projections."""
    return 2 * linear(hidden, intermediate, bias=bias) + linear(intermediate, hidden, bias=bias)
