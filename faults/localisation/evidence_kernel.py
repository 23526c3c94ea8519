"""The compiled update of the evidence of all suspects by one window.  See `evidence`."""

import numpy as np
from numba import boolean, float64, int32, int64, uint32, void
from numpy.typing import NDArray

from fleet.numba_cache import jit_entry, jit_inner

_F, _I, _L, _U = float64[::1], int32[::1], int64[::1], uint32[::1]
TOLL = 2.0  # nats: x was fitted; the log of the ratio between a maximum and an average over x
MAX = 60.0  # nats: twice any bar; a larger sum would only decay slowly
FADES = 0.7  # per window, of the difference between directions
NEEDED, ALONE = 4.0, 2.0  # nats of a supporting window, in the fit and without the windows before
_ONE = np.uint32(1)


@jit_inner
def _mean(first: int, last: int, edges: NDArray[np.int32], fresh: NDArray[np.float64]) -> float:
    total = 0.0
    for at in range(first, last):
        total += fresh[edges[at]]
    return total / max(last - first, 1)


@jit_inner
def _chosen(  # noqa: PLR0917 - compiled code takes no keywords
    slot: NDArray[np.int64],
    selected: NDArray[np.int64],
    x: NDArray[np.float64],
    evidence: NDArray[np.float64],
    nats: NDArray[np.float64],
    chosen: NDArray[np.float64],
) -> None:
    """Choose the best of the examined entities of each suspect; if any was chosen, the sum of those."""
    for m in range(selected.size):
        nats[slot[selected[m]]] = -np.inf
    for m in range(selected.size):
        nats[slot[selected[m]]] = max(nats[slot[selected[m]]], evidence[m] - TOLL)
    for m in range(selected.size):
        if x[selected[m]] > 0.0:
            nats[slot[selected[m]]] = 0.0
    for m in range(selected.size):
        if x[selected[m]] > 0.0:
            nats[slot[selected[m]]] += evidence[m] - TOLL
            chosen[selected[m]] += evidence[m]


@jit_entry(void(_L, _I, _I, _L, _F, _F, _F, _F, boolean[::1], float64, _F, _F, _U, _F, _F, _F, _U, _F))
def gather(  # noqa: PLR0917 - compiled code takes no keywords
    slot: NDArray[np.int64],  # per entity
    first: NDArray[np.int32],  # per entity: where its edges begin
    edges: NDArray[np.int32],
    selected: NDArray[np.int64],
    x: NDArray[np.float64],  # per entity
    evidence: NDArray[np.float64],  # per `chosen`
    alone: NDArray[np.float64],
    fresh: NDArray[np.float64],  # per edge
    observed: NDArray[np.bool_],  # per entity
    from_s: float,
    nats: NDArray[np.float64],  # before, per slot
    since: NDArray[np.float64],
    hits: NDArray[np.uint32],
    chosen: NDArray[np.float64],  # per entity
    new_nats: NDArray[np.float64],
    new_since: NDArray[np.float64],
    new_hits: NDArray[np.uint32],
    new_chosen: NDArray[np.float64],
) -> None:
    """Compute the evidence of the fit for the examined entities; minus half of the sum and the toll for all others."""
    for s in range(nats.size):
        new_nats[s] = 0.0
        new_hits[s] = hits[s] << _ONE
    for k in range(slot.size):
        new_chosen[k] = FADES * chosen[k]
        if observed[k]:
            new_nats[slot[k]] = -TOLL - nats[slot[k]] / 2.0
    _chosen(slot, selected, x, evidence, new_nats, new_chosen)
    share = np.ones(nats.size)
    for m in range(selected.size):
        k = selected[m]
        if evidence[m] > NEEDED and alone[m] > ALONE:
            new_hits[slot[k]] |= _ONE
        if nats[slot[k]] > 0.0:
            share[slot[k]] = _mean(first[k], first[k + 1], edges, fresh)
    for s in range(nats.size):
        new, known = new_nats[s], nats[s]
        total = min(MAX, max(0.0, known + (share[s] * new if new > 0.0 else new), new))
        new_nats[s] = total
        new_since[s] = (since[s] if known > 0.0 else from_s) if total > 0.0 else np.nan
