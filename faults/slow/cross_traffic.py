"""Foreign traffic: bytes that share a node's NIC and look like a slow NIC.

A pair with more connections than the job opened (the median over pairs) carries foreign traffic if its bytes exceed
what it carried before by at least `foreign_share` of the fastest pair's bandwidth.  Either end shows a connection, so
the peer's rows show that of a node without an agent.  Such traffic explains any slowness at both nodes, so their pairs
leave the fit while it lasts.
"""

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Floats
from faults.slow.sockets import Span


def foreign_pairs(span: Span, usual_rate: Floats, fastest_mbit: float, share: float) -> NDArray[np.bool_]:
    """Return pairs with extra connections that carry, or carried until they closed, a material load.

    `usual_rate` is the pair's own rate in bytes per second; NaN counts as none.
    """
    connections = np.fmax(span.connections, span.connections.T)
    seen = np.isfinite(connections)
    if not seen.any() or not np.isfinite(fastest_mbit):
        return np.zeros(span.bytes.shape, dtype=np.bool_)
    rate = span.rate()
    extra = seen & (connections > float(np.median(connections[seen])))
    more_mbit = 8e-6 * (rate - np.nan_to_num(usual_rate))
    closed = ~np.isfinite(rate)  # its count fell with the connection, so the amount is unknown
    flagged: NDArray[np.bool_] = extra & (closed | (more_mbit >= share * fastest_mbit))
    return flagged


def touched(foreign: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return all pairs that share a Tx or an Rx with foreign bytes, in either direction, since acknowledgements queue
    there too.
    """
    busy: NDArray[np.bool_] = np.logical_or(foreign.any(axis=1), foreign.any(axis=0))
    shared: NDArray[np.bool_] = busy[:, None] | busy[None, :]
    return shared
