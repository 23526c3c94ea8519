"""One window of all edges: their noise in one pass, and the slowest component of each affected edge.

Student's t by Bailey's polar method (Mathematics of Computation 62, 1994): with (u, v) in the unit disc and w = u^2 +
v^2, t = u sqrt(n (w^(-2/n) - 1) / w).  Randomness is SplitMix64 from the window's own seed, so a run can resume at any
window.  A flow is as fast as its slowest component: slowdowns do not add up.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from faults.fabric import Ints
from fleet.numba_cache import jit_entry, jit_inner

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = 2.0**-31
_BLOCK = 1024  # points drawn at a time
Indices = NDArray[np.int32]


@jit_inner
def _mixed(state: np.uint64) -> np.uint64:
    mixed = (state ^ (state >> _30)) * _FIRST
    mixed = (mixed ^ (mixed >> _27)) * _SECOND
    return mixed ^ (mixed >> _31)


@jit_inner
def _students(
    state: np.uint64, tail: float, u: NDArray[np.float64], w: NDArray[np.float64], drawn: NDArray[np.float64]
) -> int:
    """Draw a block of Student's t from `u.size` points of the square; returns how many fell into the disc.

    Loops without branches, which a compiler vectorises.
    """
    for at in range(u.size):
        state += _STEP
        mixed = _mixed(state)
        x = float(np.int64(mixed >> _32)) * _HALF - 1.0
        y = float(np.int64(mixed & _LOW)) * _HALF - 1.0
        u[at] = x
        w[at] = x * x + y * y
    inside = np.uint64(0)
    for at in range(u.size):
        x, square = u[at], w[at]
        u[inside] = x
        w[inside] = square
        inside += np.uint64((square < 1.0) & (square > 0.0))
    if tail == 4.0:
        for at in range(inside):
            drawn[at] = u[at] * np.sqrt(tail * (1.0 / np.sqrt(w[at]) - 1.0) / w[at])
    else:
        power = -2.0 / tail
        for at in range(inside):
            drawn[at] = u[at] * np.sqrt(tail * (w[at] ** power - 1.0) / w[at])
    return int(np.int64(inside))


@jit_entry("void(f8[::1], u8, f8, f8, i1[::1], f8[::1], f4[::1], i4[:, ::1], f4[::1], f4[::1], b1[::1])")
def fill(  # noqa: PLR0917 - compiled code takes no keywords
    out: NDArray[np.float64],
    seed: np.uint64,
    tail: float,
    shift: float,
    kind: NDArray[np.int8],  # per edge
    scale: NDArray[np.float64],  # per kind: of t
    usual: NDArray[np.float32],  # per edge
    ways: NDArray[np.int32],  # [source, target, and more; edge]
    sends: NDArray[np.float32],  # per NIC: common to all its outgoing edges
    takes: NDArray[np.float32],
    reported: NDArray[np.bool_],  # per NIC
) -> None:
    """Write the values of all edges without faults; NaN where the sender's agent does not report."""
    u, w, noise = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    state, at, there = seed, 0, 0
    for edge in range(out.size):
        first = ways[0, edge]
        if not reported[first]:
            out[edge] = np.nan
            continue
        if at == there:
            there = _students(state, tail, u, w, noise)
            state += np.uint64(_BLOCK) * _STEP
            at = 0
        out[edge] = usual[edge] + shift + scale[kind[edge]] * noise[at] + sends[first] + takes[ways[1, edge]]
        at += 1


@jit_entry("void(f8[::1], f4[::1], u8, f8, f8, i4[::1], f4[::1], i4[:, ::1], b1[::1], b1[::1])")
def fill_probes(  # noqa: PLR0917 - compiled code takes no keywords
    out: NDArray[np.float64],
    of_pair: NDArray[np.float32],  # scratch: the noise of each pair of NICs
    seed: np.uint64,
    tail: float,
    scale: float,
    pair: NDArray[np.int32],  # per edge: edges of one pair share a value
    usual: NDArray[np.float32],  # per edge, by its pair
    ways: NDArray[np.int32],
    runs: NDArray[np.bool_],  # per NIC: its prober runs
    reporting: NDArray[np.bool_],  # per NIC: its report arrives
) -> None:
    """Write the probe values of all pairs without faults; NaN where no probe is sent or reported."""
    u, w, noise = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    state, done = seed, 0
    while done < of_pair.size:
        there = min(_students(state, tail, u, w, noise), of_pair.size - done)
        of_pair[done : done + there] = noise[:there]
        state += np.uint64(_BLOCK) * _STEP
        done += there
    for edge in range(out.size):
        a, b = ways[0, edge], ways[1, edge]
        known = runs[a] & runs[b] & (reporting[a] | reporting[b])
        out[edge] = usual[edge] + scale * of_pair[pair[edge]] if known else np.nan


@jit_inner
def _at_clock(slowdown: NDArray[np.float32], at: int, late: float) -> float:
    """Interpolate between the earliest and the latest clock."""
    early = slowdown[at, 0]
    return float(early + late * (slowdown[at, 1] - early))


@jit_entry("void(f8[::1], i8[::1], i4[:, ::1], i8, i8, f4[:, ::1], f4[:, ::1], f4[:, ::1], f4[::1])")
def narrow_probes(  # noqa: PLR0917 - compiled code takes no keywords
    out: NDArray[np.float64],
    edges: NDArray[np.int64],
    ways: NDArray[np.int32],  # source, target, and up and down by each port; the rest as in `narrow`
    first_port: int,
    trains: int,  # in a window, each by the next port
    send: NDArray[np.float32],
    take: NDArray[np.float32],
    path: NDArray[np.float32],
    late: NDArray[np.float32],
) -> None:
    """Add the slowdown of the best probe of each pair: the NICs on every path, and the minimum over its paths."""
    ports = (ways.shape[0] - 2) // 2
    for at in range(edges.size):
        edge = edges[at]
        first, last = ways[0, edge], ways[1, edge]
        clock = late[first]
        least = np.inf
        for train in range(min(trains, ports)):
            way = 2 + 2 * ((first_port + train) % ports)
            congested = max(_at_clock(path, ways[way, edge], clock), _at_clock(path, ways[way + 1, edge], clock))
            least = min(least, congested)
        out[edge] += max(least, _at_clock(send, first, clock), _at_clock(take, last, clock))


@jit_entry("void(f8[::1], i8[::1], f8, f4[::1], i4[:, ::1], f4[:, ::1], f4[:, ::1], f4[:, ::1], f4[::1])")
def narrow(  # noqa: PLR0917 - compiled code takes no keywords
    out: NDArray[np.float64],
    edges: NDArray[np.int64],  # affected edges
    leak: float,
    feels: NDArray[np.float32],  # per edge: share of a slowdown that shows
    ways: NDArray[np.int32],  # source, target, up, down, and the acknowledgements' up and down; -1: none
    send: NDArray[np.float32],  # [NIC, early or late]: log slowdown of its outgoing bytes, by the two extreme clocks
    take: NDArray[np.float32],  # of its incoming bytes
    path: NDArray[np.float32],  # [uplink, early or late]; the last entry is 0 and stands for none
    late: NDArray[np.float32],  # per NIC: position of its agent's clock between the two, 0 to 1
) -> None:
    """Add the slowest component of each edge's path, as the sender's agent counts it."""
    for at in range(edges.size):
        edge = edges[at]
        first, last = ways[0, edge], ways[1, edge]
        clock = late[first]
        back = max(_at_clock(path, ways[4, edge], clock), _at_clock(path, ways[5, edge], clock))
        back = max(back, _at_clock(take, first, clock), _at_clock(send, last, clock))
        forth = max(_at_clock(path, ways[2, edge], clock), _at_clock(path, ways[3, edge], clock))
        forth = max(forth, _at_clock(send, first, clock), _at_clock(take, last, clock))
        out[edge] += feels[edge] * max(forth, leak * back)


@dataclass(frozen=True, slots=True)
class AffectedEdges:
    """Edges sorted by the component of each path position; `begin` as in a sparse matrix."""

    order: Indices  # [path position, edge]
    begin: Indices  # [path position, component]

    @classmethod
    def of(cls, ways: Indices, *, nics: int, uplinks: int) -> "AffectedEdges":
        """Sort the edges.  Path positions: source and target (NICs), then those of uplinks."""
        order = np.argsort(ways, axis=1, kind="stable").astype(np.int32)
        places = np.arange(max(nics, uplinks) + 1)
        begin = np.stack([np.searchsorted(way[by], places) for way, by in zip(ways, order, strict=True)])
        return cls(order, begin.astype(np.int32))

    def edges(self, send: NDArray[np.float32], take: NDArray[np.float32], path: NDArray[np.float32]) -> Ints:
        """Return all edges with a slow component (as in `narrow`), each once."""
        nics, cables = np.flatnonzero((send + take).any(axis=1)), np.flatnonzero(path[:-1].any(axis=1))
        found = [
            edges[begin[place] : begin[place + 1]]
            for way, (edges, begin) in enumerate(zip(self.order, self.begin, strict=True))
            for place in (nics if way < 2 else cables)
        ]
        return np.unique(np.concatenate(found)).astype(np.int64) if found else np.empty(0, np.int64)
