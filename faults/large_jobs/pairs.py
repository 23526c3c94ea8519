"""Traffic of each pair of nodes, summed by windows: one difference of a counter, one addition.

    bandwidth = 8 x bytes acknowledged / busy time     [Mbit/s, busy in us]

A difference between two polls counts in the window of the second.  Bytes and busy time are cut at the same poll, so the
bandwidth does not depend on where; a counter that falls was opened again, and counts from there.
"""

from dataclasses import dataclass
from typing import Final

from faults.observations import Observation, Probe, Socket

OUTSIDE: Final = -1  # the peer for all hosts outside the job

Pair = tuple[int, int]


class Sum:
    """The sum of one pair in one window."""

    __slots__ = ("busy_us", "bytes", "connections")

    def __init__(self) -> None:
        self.bytes = 0
        self.busy_us = 0
        self.connections = 0  # the largest number


@dataclass(slots=True)
class _Counters:
    at_s: float
    bytes: int
    busy_us: int


class Pairs:
    """Counters of all pairs, and the sums of open windows."""

    def __init__(self, nodes: int, most: int) -> None:
        self._nodes, self._most = nodes, most
        self._newest: dict[Pair, _Counters] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def take(self, seen: Observation, socket: Socket, sums: dict[Pair, Sum]) -> None:
        peer = OUTSIDE if seen.peer is None else seen.peer
        if not OUTSIDE <= peer < self._nodes:
            return
        pair = (seen.node, peer)
        carried = socket.acked_bytes + (socket.received_bytes if peer == OUTSIDE else 0)
        before = self._newest.get(pair)
        if before is None:
            if len(self._newest) < self._most:
                self._newest[pair] = _Counters(seen.at_s, carried, socket.busy_us)
            return
        if seen.at_s <= before.at_s:
            return
        moved, busy_us = carried - before.bytes, socket.busy_us - before.busy_us
        before.at_s, before.bytes, before.busy_us = seen.at_s, carried, socket.busy_us
        total = sums.get(pair)
        if total is None:
            total = sums[pair] = Sum()
        total.connections = max(total.connections, socket.connections)
        if moved >= 0 and busy_us >= 0:
            total.bytes += moved
            total.busy_us += busy_us


class Trains:
    """The fastest probe of each pair in one window, which met no other bytes.

    The receiver's own spacing of a train needs no second clock; without it the transit time is used, and the usual of
    the pair absorbs a constant clock offset.
    """

    __slots__ = ("of",)

    def __init__(self) -> None:
        self.of: dict[Pair, tuple[int, float]] = {}  # (probes, least seconds)

    def take(self, seen: Observation, probe: Probe) -> None:
        """Add a probe train that arrived at the observing node."""
        took_s = took(probe)
        if seen.peer is None or took_s is None:
            return
        count, least_s = self.of.get((seen.peer, seen.node), (0, took_s))
        self.of[seen.peer, seen.node] = count + 1, min(least_s, took_s)


def took(probe: Probe) -> float | None:
    """Return the duration of a probe; None for an impossible time."""
    took_s = probe.received_s - probe.sent_s if probe.tail_s is None else probe.tail_s
    return took_s if took_s > 0.0 else None
