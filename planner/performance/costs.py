"""What an iteration of a replica costs, for the replay, out of the fitted coefficients.

The correction depends a little on batch and lengths; it is taken at the load given and applied to every part of the
iteration alike.  What it says of the first token beyond the prompt's own iterations becomes a cost per request.
"""

from dataclasses import replace

import numpy as np

from planner.performance.coefficients import Coefficients, builtin_coefficients
from planner.performance.config import ReplicaConfig
from planner.performance.demands import Array
from planner.performance.memory import cache_tokens
from planner.performance.open_loop import OpenLoop
from planner.performance.rates import MAX_SEQUENCES, open_loop
from planner.performance.rooflines import attention_share, fixed_s
from planner.performance.steps import StepCosts, step_s

LARGE_MEMORY_GB = 70  # vLLM's defaults for serving: 8192 tokens an iteration on such GPUs, 2048 on smaller ones
CHUNK_TOKENS = {True: 8192, False: 2048}


def step_costs(
    config: ReplicaConfig,
    coefficients: Coefficients | None = None,
    *,
    input_tokens: int = 1000,
    output_tokens: int = 250,
    batch: float = 32.0,
) -> StepCosts:
    """For requests of about this size and a batch of about this many."""
    chosen = builtin_coefficients() if coefficients is None else coefficients
    loop = open_loop(config, sizes=[(input_tokens, output_tokens)], arrival_cv=1.0, coefficients=chosen)
    seen = np.minimum(batch, loop.places)
    tpot, ttft = (np.exp(log).item() for log in loop.corrections(seen))
    demand, reached = loop.demand, chosen.reached

    def scaled(seconds: Array) -> float:
        return float(seconds.item() * tpot)

    context = input_tokens + output_tokens // 2
    chunk = CHUNK_TOKENS[config.gpu.memory_gb >= LARGE_MEMORY_GB] * config.attention_data_parallel
    most = int(min(MAX_SEQUENCES * config.attention_data_parallel, chunk))
    costs = StepCosts(
        fixed_s=scaled(fixed_s(demand, reached)),
        weights_s=scaled(demand.weights_s / reached.weights),
        experts_s=scaled(demand.experts_s / reached.experts),
        expert_share=demand.expert_share.item(),
        token_s=scaled(demand.token_s / reached.compute),
        traffic_s=scaled(demand.traffic_s / reached.link),
        cached_token_s=scaled(demand.cache_s / reached.cache) / context,
        pair_s=scaled(demand.attention_s / attention_share(demand, reached)) / (input_tokens**2 / 2),
        sequence_s=reached.sequence_s * tpot,
        request_s=0.0,
        cache_tokens=cache_tokens(config, context),
        max_sequences=most,
        chunk_tokens=chunk,
        expert_token_s=scaled(demand.expert_token_s / reached.expert_compute),
        hidden_share=max(0.0, 1.0 - reached.interference) if config.role == "both" else 0.0,
    )
    return _with_request(costs, loop, ttft=ttft, input_tokens=input_tokens)


def _with_request(costs: StepCosts, loop: OpenLoop, *, ttft: float, input_tokens: int) -> StepCosts:
    """The rest of an unhindered first token's time, beside the iterations that read the prompt."""
    alone_s = loop.first_token_alone_s.item() * ttft
    reading_s = step_s(costs, decoding=0.0, cached_tokens=0.0, prompt_tokens=input_tokens, pairs=input_tokens**2 / 2)
    return replace(costs, request_s=max(0.0, alone_s - reading_s))
