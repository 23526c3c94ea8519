"""The expected cost of remote tokens where one number of the token selects the copies of all its experts (vLLM).

vLLM gives a token copy (number mod c) of an expert with c copies, by a hash of the token's position.  Each copy gets
the same share, as under `equal`, but the experts of one token do not choose independently: two with equally many
copies choose the same.  With copies in slot order and r going through 0 .. lcm of the token's counts - 1

    cost = mean over r of sum over n of cost(n) * [some expert e of the token has its copy r mod c(e) on n]

which is exact for evenly spread numbers.  Beyond `MAX` values of r the first `MAX` are used: each expert's copies then
still occur equally often to within c / MAX.
"""

import numpy as np
from numba import float64, int16, int64

from fleet.numba_cache import jit_entry, jit_inner
from placement.arrays import Experts, Floats, Ints

MAX = 4096  # values of r; 4 copies, 3 and 5 have 60, and all counts up to 10 have 2520


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
