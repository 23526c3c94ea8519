"""The expected cost of remote tokens, token by token (docs/explanation/placement/traffic.md).

Under `hash` the experts of one token do not choose independently: two with equally many copies choose the same.  The
number r goes through 0 .. lcm of the token's counts - 1, which is exact for evenly spread numbers.  Beyond `MAX` values
the first `MAX` are used: each expert's copies then still occur equally often to within copies / MAX.
"""

import numpy as np
from numba import float64, int16, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Experts, Floats, Ints
from placement.dispatch import NEAREST

MAX = 4096  # values of r; 4 copies, 3 and 5 have 60, and all counts up to 10 have 2520


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


@jit_entry(float64[::1](int16[:, :, ::1], float64[:, :, ::1], int64[:, ::1], float64[:, ::1], float64[::1], int64))
def costs(  # noqa: PLR0917 - compiled code takes no keywords
    trace: Experts, share: Floats, home: Ints, cost: Floats, all_sources: Floats, rule: int
) -> Floats:
    """[layers], from each layer's shares [experts, nodes] and homes [experts]."""
    tokens, layers, active = trace.shape
    found, wide, covered = np.zeros(layers), np.empty(active, np.int64), np.empty(len(all_sources), np.int64)
    for layer in range(layers):
        shares, homes = share[layer], home[layer]
        for token in range(tokens):
            found[layer] += token_cost(trace[token, layer], shares, homes, cost, all_sources, rule, wide, covered)
        found[layer] /= tokens
    return found


@jit_inner
def _period(experts: Experts, first: Ints) -> int:
    """The least common multiple of the experts' counts, or `MAX` if that is less."""
    period = 1
    for at in range(len(experts)):
        count = int(first[experts[at] + 1] - first[experts[at]])
        a, b = period, count
        while b:
            a, b = b, a % b
        period = period // a * count
        if period >= MAX:
            return MAX
    return period


@jit_entry(float64[::1](int16[:, :, ::1], int64[:, ::1], int64[:, ::1], float64[::1]))
def hashed_costs(trace: Experts, first: Ints, node_of_copy: Ints, all_sources: Floats) -> Floats:
    """[layers]; expert e's copies are `node_of_copy` [layers, slots] from first[e] up to first[e + 1], by slot."""
    tokens, layers = trace.shape[0], trace.shape[1]
    found, visited = np.zeros(layers), np.full(len(all_sources), -1, np.int64)
    stamp = 0
    for layer in range(layers):
        begins, nodes = first[layer], node_of_copy[layer]
        for token in range(tokens):
            experts = trace[token, layer]
            period, total = _period(experts, begins), 0.0
            for r in range(period):
                stamp += 1
                for at in range(len(experts)):
                    begin = begins[experts[at]]
                    node = nodes[begin + r % (begins[experts[at] + 1] - begin)]
                    if visited[node] != stamp:
                        visited[node] = stamp
                        total += all_sources[node]
            found[layer] += total / period
        found[layer] /= tokens
    return found


def copies_in_order(expert_of_slot: Ints, *, experts: int, node_of_slot: Ints) -> tuple[Ints, Ints]:
    """[layers, experts + 1] and [layers, slots]: where each expert's copies begin, and the nodes of copies, by slot."""
    order = np.argsort(expert_of_slot, axis=1, kind="stable")
    counts = np.stack([np.bincount(row, minlength=experts) for row in expert_of_slot])
    first = np.concatenate([np.zeros((len(counts), 1), dtype=np.int64), counts.cumsum(axis=1)], axis=1)
    return np.ascontiguousarray(first, dtype=np.int64), np.ascontiguousarray(node_of_slot[order], dtype=np.int64)
