"""The time of one engine iteration (docs/explanation/planner/performance.md, section 1), and its costs for a replica.

An iteration of a continuously batching engine computes the next token of every decoding sequence and a chunk of the
prompts (Sarathi-Serve, arXiv 2403.02310).  `step_s` is the only place with this arithmetic; the replay compiles it.

`step_costs` derives the costs from the fitted coefficients.  The correction depends a little on batch and lengths: it
is evaluated at the given load and applied to every part, and no part gets faster than `MAX_REACHED` of the data sheet's
rate.  The correction of the first token beyond the prompt's own iterations becomes a cost per request.
"""

from dataclasses import dataclass, replace
from math import pow  # noqa: A004 - of floats only, so that it is typed

import numpy as np

from planner.performance.coefficients import Coefficients, builtin_coefficients
from planner.performance.config import ReplicaConfig, chunk_tokens
from planner.performance.kv_memory import cache_tokens
from planner.performance.rates import MAX_SEQUENCES, open_loop
from planner.performance.step_time import parts


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


def step_costs(
    config: ReplicaConfig,
    coefficients: Coefficients | None = None,
    *,
    input_tokens: int = 1000,
    output_tokens: int = 250,
    batch: float = 32.0,
) -> StepCosts:
    chosen = builtin_coefficients() if coefficients is None else coefficients
    loop = open_loop(config, sizes=[(input_tokens, output_tokens)], arrival_cv=1.0, coefficients=chosen)
    batch_in_use = np.minimum(batch, loop.places)
    tpot, ttft = (np.exp(log) for log in loop.corrections(batch_in_use))
    # A busy iteration hides a share of a prompt's work; the rest also keeps its floor.
    visible_share = min(1.0, chosen.reached.interference) if config.role == "both" else 1.0
    part, beside = parts(loop.demand, chosen.reached, tpot), parts(loop.demand, chosen.reached, visible_share * tpot)
    context = input_tokens + output_tokens // 2
    chunk = chunk_tokens(config)
    costs = StepCosts(
        fixed_s=part.fixed_s.item(),
        weights_s=part.weights_s.item(),
        experts_s=part.experts_s.item(),
        expert_share=loop.demand.expert_share.item(),
        token_s=beside.token_s.item() / visible_share,
        traffic_s=part.traffic_s.item(),
        cached_token_s=part.cache_s.item() / context,
        pair_s=beside.attention_s.item() / visible_share / (input_tokens**2 / 2),
        sequence_s=part.sequence_s.item(),
        request_s=0.0,
        cache_tokens=cache_tokens(config, context),
        max_sequences=int(min(MAX_SEQUENCES * config.attention_data_parallel, chunk)),
        chunk_tokens=chunk,
        expert_token_s=beside.expert_token_s.item() / visible_share,
        hidden_share=1.0 - visible_share,
    )
    # The rest of a lone request's time to its first token, beyond the iterations that read the prompt.
    alone_s = loop.first_token_alone_s.item() * ttft.item()
    reading_s = step_s(costs, decoding=0.0, cached_tokens=0.0, prompt_tokens=input_tokens, pairs=input_tokens**2 / 2)
    return replace(costs, request_s=max(0.0, alone_s - reading_s))
