"""Token traces generated from loads, for requests without a recorded trace.  Their results are labelled as modelled.

A token of topic z scores expert e of one layer with

    x(e) = bias(e) + strength * topic(z, e) + noise,    topic and noise normal with deviation 1

and takes the best `active` experts.  With groups it first keeps the `active_groups` with the highest sum of their two
best affinities x / (1 + |x|), as DeepSeek-V3 routes (arXiv 2412.19437, section 2.1.2 and its published model code,
there with a sigmoid).  Topics join experts; Zipf's law gives their frequency.  Biases are adjusted until each expert is
chosen as often as the loads require; `residual` returns the remaining error.

The strength of topics is an assumption: no published table of co-activation is available.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fleet.documents import RuleError
from placement.arrays import Experts, Floats
from placement.token_trace import TokenTrace

if TYPE_CHECKING:
    from placement.traffic.router_model import Singles

TOPICS, STRENGTH = 32, 0.4
ROUNDS, SAMPLED_ROUNDS, SAMPLE = 20, 14, 2048  # of fitting; the first on a sample of the tokens
STEP = 0.55  # of a bias, per unit of log(wanted / found)


@dataclass(frozen=True, slots=True)
class Routing:
    active: int  # experts of one token
    groups: int = 1  # of experts
    active_groups: int = 1  # of one token


def generate_trace(
    tokens: Floats,
    *,
    routing: Routing,
    count: int,
    rng: np.random.Generator,
    strength: float = STRENGTH,
) -> TokenTrace:
    """`count` tokens that choose experts as often as `tokens` [layers, experts] requires."""
    layers, experts = tokens.shape
    _check(routing, experts, count)
    weights = 1.0 / np.arange(1, TOPICS + 1)
    topic_of_token = rng.choice(TOPICS, size=count, p=weights / weights.sum())
    taken = np.empty((count, layers, routing.active), dtype=np.int16)
    for layer in range(layers):
        topics = rng.standard_normal((TOPICS, experts), dtype=np.float32) * np.float32(strength)
        scores = rng.standard_normal((count, experts), dtype=np.float32)
        scores += topics[topic_of_token]
        taken[:, layer] = _routed(scores, tokens[layer] / tokens[layer].sum(), routing)
    return TokenTrace(taken, experts)


def residual(trace: TokenTrace, tokens: Floats) -> Floats:
    """[layers]: the part of the trace's choices that would have to differ for its loads to match."""
    wanted = tokens / tokens.sum(axis=1, keepdims=True)
    found = trace.loads() / (trace.tokens * trace.active)
    parts: Floats = np.abs(found - wanted).sum(axis=1) / 2
    return parts


def _routed(scores: "Singles", shares: Floats, routing: Routing) -> Experts:
    from placement.traffic.router_model import fit  # noqa: PLC0415 - compiles on import

    count, experts = scores.shape
    bias = np.log(shares * experts).astype(np.float32) * np.float32(STEP)
    taken = np.empty((count, routing.active), dtype=np.int16)
    limits = (routing.groups, routing.active_groups)
    sample = min(SAMPLE, count)
    wanted = shares * routing.active
    fit(scores[:sample], wanted * sample, *limits, SAMPLED_ROUNDS, STEP, bias, taken[:sample])
    fit(scores, wanted * count, *limits, ROUNDS - SAMPLED_ROUNDS, STEP, bias, taken)
    return taken


def _check(routing: Routing, experts: int, count: int) -> None:
    violations = []
    if routing.groups < 1 or experts % routing.groups:
        violations.append((("groups",), f"must divide the number of experts ({experts}), got {routing.groups}"))
    elif not 1 <= routing.active_groups <= routing.groups:
        violations.append((("active_groups",), f"must be from 1 to {routing.groups}, got {routing.active_groups}"))
    elif not 1 <= routing.active <= experts // routing.groups * routing.active_groups:
        most = experts // routing.groups * routing.active_groups
        violations.append((("active",), f"must be from 1 to {most}, got {routing.active}"))
    if count < 1:
        violations.append((("count",), f"must be at least 1, got {count}"))
    RuleError.raise_for(violations)
