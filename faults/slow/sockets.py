"""Counters of all pairs over time, and their differences: bytes, busy time, bandwidth in use.

The bandwidth counts only time with outstanding bytes, so it does not depend on the polling rate.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from faults.fabric import Floats
from faults.observations import Observation, Socket, SocketPoll

ACKED, RECEIVED, BUSY, UNACKED, CONNECTIONS, RWND, SNDBUF, UNREAD = range(8)
FIELDS: Final = 8
STORED: Final = (Socket, SocketPoll)  # kinds of observations
TICK_US: Final = 4000.0  # the step of busy time at 250 Hz


@dataclass(frozen=True, slots=True)
class Row:
    """One poll of one node: a line per peer, NaN without a connection."""

    at_s: float
    peers: Floats  # peer x field


@dataclass(frozen=True, slots=True)
class Span:
    """Differences between two polls, per pair (source, target)."""

    seconds: Floats  # per source node
    bytes: Floats
    busy_us: Floats
    connections: Floats  # the largest number, if counted
    received: Floats  # by the source, from the target
    rwnd_us: Floats  # the receiver's window was full: its process does not read
    sndbuf_us: Floats  # the sender's buffer was too small for the path

    def rate(self) -> Floats:
        """Return bytes per second and pair, by the sender's count; by the receiver's if the sender has no agent."""
        seconds = np.where(self.seconds > 0, self.seconds, np.nan)
        sent, got = self.bytes / seconds[:, None], (self.received / seconds[:, None]).T
        return np.where(np.isfinite(self.seconds)[:, None], sent, got)

    def bandwidth_mbit(self, busy_ticks: float) -> Floats:
        """Return the bandwidth; NaN if too little time was busy."""
        known = self.busy_us >= busy_ticks * TICK_US
        return np.where(known & (self.bytes > 0), 8.0 * self.bytes / np.where(known, self.busy_us, 1.0), np.nan)


class Sockets:
    def __init__(self, nodes: int, keep_s: float) -> None:
        self.nodes = nodes
        self.rows: tuple[deque[Row], ...] = tuple(deque() for _ in range(nodes))
        self._keep_s = keep_s

    def observe(self, observation: Observation) -> None:
        """Add a poll or a socket; drop one older than the newest of its node."""
        at_s, node, peer = observation.at_s, observation.node, observation.peer
        if not 0 <= node < self.nodes:
            return
        rows = self.rows[node]
        if rows and at_s < rows[-1].at_s:
            return
        if not rows or at_s > rows[-1].at_s:
            rows.append(Row(at_s, np.full((self.nodes, FIELDS), np.nan)))
            while rows[0].at_s < at_s - self._keep_s:
                rows.popleft()
        if isinstance(observation.values, Socket) and peer is not None and 0 <= peer < self.nodes:
            rows[-1].peers[peer] = _fields(observation.values)

    def span(self, from_s: float, to_s: float, *, counted: bool = False) -> Span | None:
        """Return the span from the first poll at or after `from_s` to the last by `to_s`; None if no node has two.

        `counted`: with the connections of all polls in between.
        """
        n = self.nodes
        seconds = np.full(n, np.nan)
        change = np.full((n, n, FIELDS), np.nan)
        most = np.full((n, n), np.nan)
        for node, rows in enumerate(self.rows):
            inside = between(rows, from_s, to_s)
            if len(inside) < 2:
                continue
            seconds[node] = inside[-1].at_s - inside[0].at_s
            change[node] = inside[-1].peers - inside[0].peers
            if counted:
                most[node] = np.fmax.reduce([row.peers[:, CONNECTIONS] for row in inside])
        if not np.isfinite(seconds).any():
            return None
        broken = ~(
            (change[:, :, ACKED] >= 0) & (change[:, :, RECEIVED] >= 0) & (change[:, :, BUSY] >= 0)
        )  # closed and opened again, or never observed
        change[broken] = np.nan
        return Span(
            seconds,
            change[:, :, ACKED],
            change[:, :, BUSY],
            most,
            change[:, :, RECEIVED],
            change[:, :, RWND],
            change[:, :, SNDBUF],
        )


def between(rows: deque[Row], from_s: float, to_s: float) -> list[Row]:
    first = bisect_left(rows, from_s, key=lambda row: row.at_s)
    last = bisect_right(rows, to_s, key=lambda row: row.at_s)
    return [rows[at] for at in range(first, last)]


def _fields(socket: Socket) -> tuple[float, ...]:
    return (
        socket.acked_bytes,
        socket.received_bytes,
        socket.busy_us,
        socket.unacked,
        socket.connections,
        socket.rwnd_limited_us,
        socket.sndbuf_limited_us,
        socket.read_queue_bytes,
    )
