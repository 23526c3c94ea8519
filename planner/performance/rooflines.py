"""Times of steps and prompts from demands and what of the hardware is reached (docs/performance.md, sections 1 and 2).

A step's time is the slower of reading weights and doing arithmetic, for dense layers and for experts apart, plus what
neither hides: cache, traffic, launches and the host.
"""

import numpy as np

from planner.performance.coefficients import Reached
from planner.performance.demands import Array, Demands


def fixed_s(demand: Demands, reached: Reached) -> Array:
    """Launches and the latency of two collectives a layer: once per step."""
    launches_s = reached.layer_s * demand.layers + reached.moe_layer_s * demand.moe_layers
    return launches_s + 2 * reached.collective_s * demand.layers * demand.hops


def touched(demand: Demands, tokens: Array) -> Array:
    """Share of the experts that a step reads when each of its tokens picks its own evenly and independently."""
    if not demand.expert_share.any():
        return np.zeros(1)
    return np.asarray(1 - (1 - demand.expert_share) ** tokens)


def decode_s(demand: Demands, reached: Reached, batch: Array) -> Array:
    """One step of a batch that decodes, each sequence halfway through its output."""
    dense_s = np.maximum(demand.weights_s / reached.weights, demand.token_s / reached.compute * batch)
    experts_s = np.maximum(
        demand.experts_s / reached.experts * touched(demand, batch),
        demand.expert_token_s / reached.expert_compute * batch,
    )
    each_s = demand.traffic_s / reached.link + reached.sequence_s + demand.cache_s / reached.cache
    return fixed_s(demand, reached) + dense_s + experts_s + each_s * batch


def prompt_work_s(demand: Demands, reached: Reached) -> Array:
    """Arithmetic and traffic of one prompt, which others wait for whatever the batch."""
    each_s = demand.token_s / reached.compute + demand.expert_token_s / reached.expert_compute
    return demand.input_tokens * (each_s + demand.traffic_s / reached.link) + _attention_s(demand, reached)


def prompt_alone_s(demand: Demands, reached: Reached) -> Array:
    """One prompt with nobody beside it."""
    tokens = demand.input_tokens
    dense_s = np.maximum(demand.weights_s / reached.weights, demand.token_s / reached.compute * tokens)
    experts_s = np.maximum(
        demand.experts_s / reached.experts * touched(demand, tokens),
        demand.expert_token_s / reached.expert_compute * tokens,
    )
    rest_s = demand.traffic_s / reached.link * tokens + _attention_s(demand, reached)
    return fixed_s(demand, reached) + reached.prefill * (dense_s + experts_s + rest_s)


def attention_share(demand: Demands, reached: Reached) -> Array:
    """Share of peak arithmetic that attention over a prompt reaches."""
    return np.asarray(reached.attention_compute * np.where(demand.latent > 0, reached.latent_compute, 1.0))


def _attention_s(demand: Demands, reached: Reached) -> Array:
    return demand.attention_s / attention_share(demand, reached)
