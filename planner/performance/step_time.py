"""Times of steps and prompts from demands and reached shares (docs/explanation/planner/performance.md, sections 1, 2).

A step's time is the slower of reading weights and doing arithmetic, for dense layers and for experts separately, plus
the parts that neither hides: cache, traffic, launches and the host.

A correction multiplies times by a `factor`.  With a factor no part of a step runs at more than `MAX_REACHED` of the
data sheet's rate; arithmetic counts as in `planner.explain.ideal_bound`, so every token passes the output head.
Without a factor, as in the fit, the shares apply unchanged.
"""

from dataclasses import dataclass

import numpy as np

from planner.performance.coefficients import Reached
from planner.performance.hardware_demand import Array, Demands

MAX_REACHED = 0.9  # of a data sheet's rate; the best kernels of any vendor stay below


def fixed_s(demand: Demands, reached: Reached) -> Array:
    """Launches and the latency of two collectives a layer: once per step."""
    launches_s = reached.layer_s * demand.layers + reached.moe_layer_s * demand.moe_layers
    return launches_s + 2 * reached.collective_s * demand.layers * demand.hops


def touched(demand: Demands, tokens: Array) -> Array:
    """Share of the experts that a step reads when each of its tokens picks its own uniformly and independently."""
    if not demand.expert_share.any():
        return np.zeros(1)
    return np.asarray(1 - (1 - demand.expert_share) ** tokens)


@dataclass(frozen=True, slots=True)
class Parts:
    fixed_s: Array
    weights_s: Array
    experts_s: Array
    token_s: Array
    expert_token_s: Array
    traffic_s: Array
    cache_s: Array
    attention_s: Array
    sequence_s: Array


def parts(demand: Demands, reached: Reached, factor: Array | None = None) -> Parts:
    """Times the factor, and never faster than the floor."""
    times = 1.0 if factor is None else factor

    def part(share: Array | float, demanded_s: Array, floor_s: Array | None = None) -> Array:
        taken_s = demanded_s / share * times
        if factor is None:
            return np.asarray(taken_s)
        return np.asarray(np.maximum(taken_s, (demanded_s if floor_s is None else floor_s) / MAX_REACHED))

    return Parts(
        fixed_s=np.asarray(fixed_s(demand, reached) * times),
        weights_s=part(reached.weights, demand.weights_s),
        experts_s=part(reached.experts, demand.experts_s),
        token_s=part(reached.compute, demand.token_s, demand.token_s + demand.head_s),
        expert_token_s=part(reached.expert_compute, demand.expert_token_s),
        traffic_s=part(reached.link, demand.traffic_s),
        cache_s=part(reached.cache, demand.cache_s, np.maximum(demand.cache_s, demand.reach_s)),
        attention_s=part(attention_share(demand, reached), demand.attention_s),
        sequence_s=np.asarray(reached.sequence_s * times),
    )


def decode_s(demand: Demands, reached: Reached, batch: Array, factor: Array | None = None) -> Array:
    """One step of a batch that decodes, each sequence halfway through its output."""
    part = parts(demand, reached, factor)
    dense_s = np.maximum(part.weights_s, part.token_s * batch)
    experts_s = np.maximum(part.experts_s * touched(demand, batch), part.expert_token_s * batch)
    each_s = part.traffic_s + part.sequence_s + part.cache_s
    return part.fixed_s + dense_s + experts_s + each_s * batch


def prompt_work_s(demand: Demands, reached: Reached, factor: Array | None = None) -> Array:
    """Arithmetic and traffic of one prompt, which all other sequences wait for."""
    part = parts(demand, reached, factor)
    return demand.input_tokens * (part.token_s + part.expert_token_s + part.traffic_s) + part.attention_s


def prompt_floor_s(demand: Demands) -> Array:
    """The minimum time to read a prompt, independent of the fit."""
    each_s = demand.token_s + demand.head_s + demand.expert_token_s
    return (demand.input_tokens * each_s + demand.attention_s) / MAX_REACHED


def output_floor_s(demand: Demands) -> Array:
    """The minimum time to decode an output in the largest batch: its arithmetic or its cache, if that takes longer."""
    each_s = demand.token_s + demand.head_s + demand.expert_token_s + demand.reach_s
    return demand.output_tokens * np.maximum(each_s, demand.cache_s) / MAX_REACHED


def prompt_alone_s(demand: Demands, reached: Reached) -> Array:
    tokens = demand.input_tokens
    dense_s = np.maximum(demand.weights_s / reached.weights, demand.token_s / reached.compute * tokens)
    experts_s = np.maximum(
        demand.experts_s / reached.experts * touched(demand, tokens),
        demand.expert_token_s / reached.expert_compute * tokens,
    )
    rest_s = demand.traffic_s / reached.link * tokens + demand.attention_s / attention_share(demand, reached)
    return fixed_s(demand, reached) + reached.prefill * (dense_s + experts_s + rest_s)


def attention_share(demand: Demands, reached: Reached) -> Array:
    """Share of peak arithmetic that attention over a prompt reaches."""
    return np.asarray(reached.attention_compute * np.where(demand.latent > 0, reached.latent_compute, 1.0))
