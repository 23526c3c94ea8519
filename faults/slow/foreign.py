"""Other people's bytes: they share a node's NIC and look exactly like a slow one.

A pair with more connections than the job opened itself (the median over pairs) carries foreign traffic when
its bytes stand above what it carried before by at least `foreign_share` of the fastest pair's bandwidth.  Such traffic
explains whatever is slow at both nodes, so their pairs are left out of the fit while it lasts.
"""

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats
from faults.slow.sockets import Span


def foreign_pairs(span: Span, kind_bytes: Floats, fastest_mbit: float, share: float) -> NDArray[np.bool_]:
    """Pairs with extra connections that carry, or carried until they closed, a material load.

    `kind_bytes` is what the pair carries in a stretch of that length by itself.
    """
    seen = np.isfinite(span.connections)
    if not seen.any() or not np.isfinite(fastest_mbit):
        return np.zeros(span.bytes.shape, dtype=np.bool_)
    usual = float(np.median(span.connections[seen]))
    extra = seen & (span.connections > usual)
    seconds = np.where(span.seconds > 0, span.seconds, np.nan)[:, None]
    more_mbit = 8e-6 * (span.bytes - np.nan_to_num(kind_bytes)) / seconds
    closed = ~np.isfinite(span.bytes)  # its count fell when the connection went: how much it was is not known
    flagged: NDArray[np.bool_] = extra & (closed | (more_mbit >= share * fastest_mbit))
    return flagged


def touched(foreign: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """All pairs that share a Tx or an Rx with foreign bytes, in either direction: acknowledgements wait there too."""
    busy: NDArray[np.bool_] = np.logical_or(foreign.any(axis=1), foreign.any(axis=0))
    shared: NDArray[np.bool_] = busy[:, None] | busy[None, :]
    return shared
