"""The time of one engine iteration, as the prediction and the replay both use it.

An iteration of a continuously batching engine carries the next token of every decoding sequence and a chunk of the
prompts that are being read (Sarathi-Serve, arXiv 2403.02310).  Its time is the slower of reading the weights and doing
the arithmetic, for the layers that every token passes and for the routed experts apart, plus what neither hides: the
cache, the attention of the prompts, the traffic between GPUs and the host.  (docs/performance.md, section 1)
"""

from dataclasses import dataclass
from math import pow  # noqa: A004 - of floats only, so that it is typed


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What an iteration of one replica costs, and what the replica holds."""

    fixed_s: float  # launches, scheduling, collectives' latency: once per iteration
    weights_s: float  # reading the weights that every token uses, once
    experts_s: float  # reading all routed experts, once; 0 in a dense model
    expert_share: float  # chance that a token picks a given routed expert
    token_s: float  # arithmetic of one token, decoded or of a prompt, beside the routed experts
    traffic_s: float  # moving one token's activations between the replica's GPUs
    cached_token_s: float  # reading one cached token of a decoding sequence
    pair_s: float  # attention between one prompt token and one token before it
    sequence_s: float  # host work per decoding sequence
    request_s: float  # once per request before its prompt is read: tokenising, queueing between processes
    cache_tokens: int  # tokens of all sequences together that fit beside the weights
    max_sequences: int  # running at once
    chunk_tokens: int  # tokens of one iteration, decoded ones included
    expert_token_s: float = 0.0  # arithmetic of one token in its routed experts


def step_s(
    costs: StepCosts, *, decoding: float, cached_tokens: float, prompt_tokens: float = 0.0, pairs: float = 0.0
) -> float:
    """One iteration: `decoding` sequences holding `cached_tokens` between them, and a chunk of prompts beside them."""
    tokens = decoding + prompt_tokens
    touched = 1.0 - pow(1.0 - costs.expert_share, tokens)
    return (
        costs.fixed_s
        + max(costs.weights_s, costs.token_s * tokens)
        + max(costs.experts_s * touched, costs.expert_token_s * tokens)
        + costs.traffic_s * tokens
        + costs.cached_token_s * cached_tokens
        + costs.pair_s * pairs
        + costs.sequence_s * decoding
    )
