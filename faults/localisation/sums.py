"""Sums over the edges of every entity, by way of the NICs.

Ten entities lie on an edge, but their sums are related: with o the sum over the edges out of a NIC and i over those
into it,

    Tx = o + leak i,    Rx = i + leak o,    NIC = o + i

node and leaf sum their NICs, less the edges inside them, which would count twice.  So an edge is added to two NICs and
two cables, and the rest is computed once per entity.  The same holds for squares, with leak squared.
"""

import numpy as np
from numba import boolean, float64, int8, int32, int64, types
from numpy.typing import NDArray

from faults.localisation.entities import Kind
from faults.localisation.window_arrays import Read, Sums, Ways
from fleet.numba_cache import jit_inner

TX, RX, NIC, NODE, LEAF, UP = (int(kind) for kind in (Kind.TX, Kind.RX, Kind.NIC, Kind.NODE, Kind.LEAF, Kind.UP))
_F, _I = float64[::1], int32[::1]


WAYS = types.NamedTuple([*(_I for _ in range(6)), int8[::1], _I, float64], Ways)  # type: ignore[no-untyped-call]
SUMS = types.NamedUniTuple(_F, 7, Sums)  # type: ignore[no-untyped-call]
READ = types.NamedTuple([_F, _F, boolean[::1], _F, _I, int64[::1], _F, _F, SUMS], Read)  # type: ignore[no-untyped-call]


@jit_inner
def gathered(of: Ways, amount: NDArray[np.float64], sums: Sums) -> None:
    """Sum the edges' values, most or few of them 0.  One loop: a call per edge would count references to arrays."""
    sums.out[:], sums.into[:], sums.itself[:] = 0.0, 0.0, 0.0
    sums.up[:], sums.down[:], sums.node[:], sums.leaf[:] = 0.0, 0.0, 0.0, 0.0
    for edge in range(amount.size):
        value = amount[edge]
        if value == 0.0:
            continue
        source, target, up, down = of.source[edge], of.target[edge], of.up[edge], of.down[edge]
        sums.out[source] += value
        sums.into[target] += value
        if up >= 0:
            sums.up[up] += value
        if down >= 0:
            sums.down[down] += value
        leaf, node = of.leaf[source], of.node[source]
        if leaf >= 0 and leaf == of.leaf[target]:
            sums.leaf[leaf] -= value
        if node == of.node[target]:
            sums.node[node] -= value
            if source == target:
                sums.itself[source] += value
    for port in range(of.node.size):
        both, leaf = sums.out[port] + sums.into[port], of.leaf[port]
        sums.node[of.node[port]] += both
        if leaf >= 0:
            sums.leaf[leaf] += both


@jit_inner
def per_entity(of: Ways, sums: Sums, leak: float, total: NDArray[np.float64]) -> None:
    """Fill the sum over the edges of each entity; of squares with leak squared."""
    for k in range(total.size):
        kind, which = of.kind[k], of.which[k]
        if kind == TX:
            total[k] = sums.out[which] + leak * (sums.into[which] - sums.itself[which])
        elif kind == RX:
            total[k] = sums.into[which] + leak * (sums.out[which] - sums.itself[which])
        elif kind == NIC:
            total[k] = sums.out[which] + sums.into[which] - sums.itself[which]
        elif kind == NODE:
            total[k] = sums.node[which]
        elif kind == LEAF:
            total[k] = sums.leaf[which]
        else:
            total[k] = sums.up[which] if kind == UP else sums.down[which]
