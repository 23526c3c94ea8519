"""One window of all edges: their noise in one pass, and the narrowest thing on the way of those that have any.

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


@entry("void(f8[::1], u8, f8, f8, i1[::1], f8[::1], f4[::1], i4[:, ::1], f4[::1], f4[::1], b1[::1])")
def fill(  # noqa: PLR0917 - compiled code takes no keywords
    out: NDArray[np.float64],
    seed: np.uint64,
    tail: float,
    shift: float,
    kind: NDArray[np.int8],  # per edge
    scale: NDArray[np.float64],  # per kind: of t
    usual: NDArray[np.float32],  # per edge
    ways: NDArray[np.int32],  # [source, target, and more; edge]
    sends: NDArray[np.float32],  # per NIC: what shows on all it sends
    takes: NDArray[np.float32],
    heard: NDArray[np.bool_],  # per NIC
) -> None:
    """Write what every edge says when nothing is wrong; NaN where the sender's agent is not heard."""
    state = seed
    power = -2.0 / tail
    for edge in range(out.size):
        first = ways[0, edge]
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
        out[edge] = usual[edge] + shift + scale[kind[edge]] * noise + sends[first] + takes[ways[1, edge]]


@part
def _seen(felt: NDArray[np.float32], at: int, late: float) -> float:
    """Between what the earliest and the latest clock make of it."""
    early = felt[at, 0]
    return float(early + late * (felt[at, 1] - early))


@entry("void(f8[::1], i8[::1], f8, f4[::1], i4[:, ::1], f4[:, ::1], f4[:, ::1], f4[:, ::1], f4[::1])")
def narrow(  # noqa: PLR0917 - compiled code takes no keywords
    out: NDArray[np.float64],
    edges: NDArray[np.int64],  # that anything is on the way of
    leak: float,
    feels: NDArray[np.float32],  # per edge: share of a slowdown that shows
    ways: NDArray[np.int32],  # source, target, up, down, and the acknowledgements' up and down; -1: none
    send: NDArray[np.float32],  # [NIC, early or late]: log slowdown of what it sends, by the most wrong clocks
    take: NDArray[np.float32],  # of what it receives
    path: NDArray[np.float32],  # [uplink, early or late]; the last is 0 and stands for none
    late: NDArray[np.float32],  # per NIC: where the clock of its agent lies between the two, 0 to 1
) -> None:
    """Add the narrowest thing on each edge's way, as the sender's agent counts it."""
    for at in range(edges.size):
        edge = edges[at]
        first, last = ways[0, edge], ways[1, edge]
        clock = late[first]
        back = max(_seen(path, ways[4, edge], clock), _seen(path, ways[5, edge], clock))
        back = max(back, _seen(take, first, clock), _seen(send, last, clock))
        forth = max(_seen(path, ways[2, edge], clock), _seen(path, ways[3, edge], clock))
        forth = max(forth, _seen(send, first, clock), _seen(take, last, clock))
        out[edge] += feels[edge] * max(forth, leak * back)
