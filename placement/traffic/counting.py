"""The expected cost of remote tokens, token by token: the formula of `expected`."""

import numpy as np
from numba import float64, int16, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Experts, Floats, Ints
from placement.dispatch import NEAREST


@jit_inner
def uncovered(  # noqa: PLR0917 - compiled code takes no keywords
    wide: Ints, wides: int, share: Floats, node: int, cost: Floats, rule: int
) -> float:
    """The additional cost of certainly reaching a node that only the `wide` experts, on many nodes, may reach.

    `cost` [sources, nodes] is weighted by source.
    """
    total = 0.0
    for source in range(cost.shape[0]):
        if cost[source, node] == 0.0:
            continue
        missed = 1.0
        for at in range(wides):
            expert = wide[at]
            if rule != NEAREST or share[expert, source] == 0.0:
                missed *= 1.0 - share[expert, node]
        total += cost[source, node] * missed
    return total


@jit_inner
def token_cost(  # noqa: PLR0917 - compiled code takes no keywords
    experts: Experts,
    share: Floats,
    home: Ints,
    cost: Floats,
    all_sources: Floats,
    rule: int,
    wide: Ints,
    covered: Ints,
) -> float:
    """The cost of one token; `home` [experts] is an expert's one node, or below 0 where it has copies on several.

    `wide` [experts of a token] and `covered` [nodes] are scratch.
    """
    nodes, wides, total = share.shape[1], 0, 0.0
    for node in range(nodes):
        covered[node] = 0
    for at in range(len(experts)):
        expert = int(experts[at])
        if home[expert] < 0:
            wide[wides] = expert
            wides += 1
        else:
            covered[home[expert]] = 1
    for node in range(nodes):
        if covered[node]:
            total += all_sources[node]
        elif wides > 0:
            total += all_sources[node] - uncovered(wide, wides, share, node, cost, rule)
    return total


@jit_entry(
    float64[::1](
        int16[:, :, ::1],
        float64[:, :, ::1],
        int64[:, ::1],
        float64[:, ::1],
        float64[::1],
        int64,
        int64[::1],
        int64[::1],
    )
)
def costs(  # noqa: PLR0917 - compiled code takes no keywords
    trace: Experts,
    share: Floats,
    home: Ints,
    cost: Floats,
    all_sources: Floats,
    rule: int,
    wide: Ints,
    covered: Ints,
) -> Floats:
    """[layers], from each layer's shares [experts, nodes] and homes [experts]."""
    tokens, layers = trace.shape[0], trace.shape[1]
    found = np.zeros(layers)
    for layer in range(layers):
        shares, homes = share[layer], home[layer]
        for token in range(tokens):
            found[layer] += token_cost(trace[token, layer], shares, homes, cost, all_sources, rule, wide, covered)
        found[layer] /= tokens
    return found
