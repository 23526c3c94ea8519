"""One window of all edges in one pass: noise, and the narrowest thing on each edge's way.

Student's t by Bailey's polar method (Mathematics of Computation 62, 1994): with (u, v) in the unit disc and
w = u^2 + v^2, t = u sqrt(n (w^(-2/n) - 1) / w).  Randomness is SplitMix64 from the window's own seed, so that a run can
be taken up anywhere.  A flow through several narrow things is as fast as the narrowest: slowdowns do not add up.
"""

import numpy as np
from numpy.typing import NDArray

from fleet.compiled import entry, part

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = 2.0**-31


@part
def _mixed(state: np.uint64) -> np.uint64:
    mixed = (state ^ (state >> _30)) * _FIRST
    mixed = (mixed ^ (mixed >> _27)) * _SECOND
    return mixed ^ (mixed >> _31)


@entry(
    "void(f8[::1], u8, f8, f8, f8, i1[::1], f8[::1], f4[::1], f4[::1], i4[:, ::1], f4[::1], f4[::1], f4[::1], f4[::1],"
    " b1[::1])"
)
def fill(  # noqa: PLR0917 - compiled code takes no keywords
    out: NDArray[np.float64],
    seed: np.uint64,
    tail: float,
    leak: float,
    shift: float,
    kind: NDArray[np.int8],  # per edge
    scale: NDArray[np.float64],  # per kind: of t
    feels: NDArray[np.float32],  # per edge: share of a slowdown that shows
    usual: NDArray[np.float32],  # per edge
    ways: NDArray[np.int32],  # source, target, up, down, and the acknowledgements' up and down; -1: none
    wander: NDArray[np.float32],  # per NIC
    send: NDArray[np.float32],  # per NIC: log slowdown of what it sends
    take: NDArray[np.float32],  # per NIC: of what it receives
    path: NDArray[np.float32],  # per uplink; the last entry is 0 and stands for none
    heard: NDArray[np.bool_],  # per NIC
) -> None:
    """Write the log slowdown of every edge; NaN where the sender's agent is not heard."""
    state = seed
    power = -2.0 / tail
    for edge in range(out.size):
        first, last = ways[0, edge], ways[1, edge]
        if not heard[first]:
            out[edge] = np.nan
            continue
        u = 0.0
        w = 2.0
        while w >= 1.0 or w == 0.0:
            state += _STEP
            drawn = _mixed(state)
            u = float(drawn >> _32) * _HALF - 1.0
            v = float(drawn & _LOW) * _HALF - 1.0
            w = u * u + v * v
        much = 1.0 / np.sqrt(w) if tail == 4.0 else w**power
        noise = u * np.sqrt(tail * (much - 1.0) / w)
        back = max(path[ways[4, edge]], path[ways[5, edge]])
        narrow = max(send[first], take[last], path[ways[2, edge]], path[ways[3, edge]])
        narrow = max(narrow, leak * max(back, take[first], send[last]))
        out[edge] = (
            usual[edge] + shift + scale[kind[edge]] * noise + wander[first] + wander[last] + feels[edge] * narrow
        )
