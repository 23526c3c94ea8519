"""The time of one engine iteration, for the prediction and the replay.

An iteration of a continuously batching engine computes the next token of every decoding sequence and a chunk of the
prompts (Sarathi-Serve, arXiv 2403.02310).  Its time is the slower of reading the weights and doing the arithmetic, for
the layers that every token passes and for the routed experts separately, plus the parts that neither hides: the cache,
the attention of the prompts, the traffic between GPUs and the host.
(docs/explanation/planner/performance.md, section 1)
"""

from dataclasses import dataclass
from math import pow  # noqa: A004 - of floats only, so that it is typed


@dataclass(frozen=True, slots=True)
class StepCosts:
    """The costs of one replica's iteration, and the replica's capacity."""

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
    hidden_share: float = 0.0  # of a prompt's work that does not delay decoding sequences


def step_s(
    costs: StepCosts, *, decoding: float, cached_tokens: float, prompt_tokens: float = 0.0, pairs: float = 0.0
) -> float:
    """One iteration: `decoding` sequences that hold `cached_tokens` together, and a chunk of prompts beside them.

    Prompts add their work to the decoding time, less the share that a busy iteration hides; alone, they hide as much
    reading of weights as they do arithmetic.
    """
    if decoding > 0.0:
        touched = 1.0 - pow(1.0 - costs.expert_share, decoding)
        dense_s = max(costs.weights_s, costs.token_s * decoding)
        experts_s = max(costs.experts_s * touched, costs.expert_token_s * decoding)
        share = 1.0 - costs.hidden_share
    else:
        touched = 1.0 - pow(1.0 - costs.expert_share, prompt_tokens)
        dense_s = max(0.0, costs.weights_s - costs.token_s * prompt_tokens)
        experts_s = max(0.0, costs.experts_s * touched - costs.expert_token_s * prompt_tokens)
        share = 1.0
    work_s = (costs.token_s + costs.expert_token_s + costs.traffic_s) * prompt_tokens + costs.pair_s * pairs
    each_s = (costs.traffic_s + costs.sequence_s) * decoding + costs.cached_token_s * cached_tokens
    return costs.fixed_s + dense_s + experts_s + each_s + share * work_s
