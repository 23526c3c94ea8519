"""The costs of a replica's iteration, for the replay, from the fitted coefficients.

The correction depends a little on batch and lengths.  It is evaluated at the given load and applied to every part of
the iteration, and no part gets faster than `MAX_REACHED` of the data sheet's rate.  The correction of the first token
beyond the prompt's own iterations becomes a cost per request.
"""

from dataclasses import replace

import numpy as np

from planner.performance.coefficients import Coefficients, builtin_coefficients
from planner.performance.config import ReplicaConfig, chunk_tokens
from planner.performance.kv_memory import cache_tokens
from planner.performance.open_loop import OpenLoop
from planner.performance.rates import MAX_SEQUENCES, open_loop
from planner.performance.step_time import parts
from planner.performance.steps import StepCosts, step_s


def step_costs(
    config: ReplicaConfig,
    coefficients: Coefficients | None = None,
    *,
    input_tokens: int = 1000,
    output_tokens: int = 250,
    batch: float = 32.0,
) -> StepCosts:
    """The costs for requests of about this size and a batch of about this number."""
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
    return _with_request(costs, loop, ttft=ttft.item(), input_tokens=input_tokens)


def _with_request(costs: StepCosts, loop: OpenLoop, *, ttft: float, input_tokens: int) -> StepCosts:
    """Add the rest of a lone request's time to its first token, beyond the iterations that read the prompt."""
    alone_s = loop.first_token_alone_s.item() * ttft
    reading_s = step_s(costs, decoding=0.0, cached_tokens=0.0, prompt_tokens=input_tokens, pairs=input_tokens**2 / 2)
    return replace(costs, request_s=max(0.0, alone_s - reading_s))
