"""Sender or receiver: one-way evidence, where bandwidth has none.

With TCP a slow queue holds data one way and acknowledgements the other, so both directions of a node look slow.  Two
measurements are one-way:

Where bytes wait.  Both ends looked at in the same moment:
    on their way i -> j     F_ij = sent_i - received_j = unacked_ij m - A_ij         data that wait before j
    and back     j -> i     A_ij = received_j - acked_i                             acknowledgements that wait before i
(m: bytes of a packet; A corrected by bandwidth x difference of the two moments).  What waits behind the Tx of k is
sum F_kj + sum A_jk, behind its Rx sum F_jk + sum A_kj.

One-way delays d_ij of passes or probes, against their own history or their peers: Tx k delays k -> *, Rx k * -> k.
The message must exceed what a shaper lets through at once, and the delay of a pass is counted from the later of both
calls: received_j - max(called_i, called_j).
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from faults.fabric import Floats
from faults.observations import Observation, Pass, Probe
from faults.slow.settings import SlowSettings
from faults.slow.sockets import ACKED, RECEIVED, UNACKED, Row, Sockets, between
from faults.verdict import Direction

LEAST_BYTES: Final = 3000.0  # two packets: what waits on any path
BOTH: Final = 0.25  # of the evidence that a pure Tx or Rx would give; below, both ways are as slow
MOST: Final = 2.3  # log 10: what waits on one side only, above what always waits
NORMAL: Final = 1.4826


@dataclass(frozen=True, slots=True)
class Ways:
    """Log of (evidence for Tx / for Rx) per piece; NaN where a piece says nothing."""

    waiting: float
    passes: float

    @property
    def known(self) -> bool:
        """Whether any piece said anything."""
        return bool(np.isfinite([self.waiting, self.passes]).any())

    def direction(self, slowdown: float) -> Direction:
        """Each piece against what it is when only one way is slow: all bytes wait there, delays grow by `slowdown`."""
        parts = (self.waiting / MOST, float(np.clip(self.passes / max(slowdown, 0.1), -1.5, 1.5)))
        score = float(np.nansum(parts))
        if abs(score) < BOTH:
            return Direction.BOTH
        return Direction.TX if score > 0 else Direction.RX


def waiting_bytes(
    sockets: Sockets, bandwidth_mbit: Floats, *, from_s: float, to_s: float, settings: SlowSettings
) -> tuple[Floats, Floats]:
    """Mean bytes of data (F) and of acknowledgements (A) on their way, per pair, over the looks of a stretch."""
    n = sockets.nodes
    data, acks, looks = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    rows = [between(row, from_s, to_s) for row in sockets.rows]
    times = [np.array([row.at_s for row in line]) for line in rows]
    rate = np.nan_to_num(bandwidth_mbit) * 1e6 / 8  # bytes per second
    for i in range(n):
        for row in rows[i]:
            out = row.peers[:, UNACKED] * settings.segment_bytes
            for j in np.flatnonzero(np.nan_to_num(out) > LEAST_BYTES):
                other = _nearest(rows[j], times[j], row.at_s, settings.aligned_s)
                if other is None:
                    continue
                ahead = rate[i, j] * (other.at_s - row.at_s)
                back = float(np.clip(other.peers[i, RECEIVED] - row.peers[j, ACKED] - ahead, 0.0, out[j]))
                acks[i, j] += np.nan_to_num(back)
                data[i, j] += out[j] - np.nan_to_num(back)
                looks[i, j] += 1
    total = np.array([len(line) for line in rows], dtype=np.float64)[:, None]
    share = 1.0 / np.maximum(total, 1.0)
    return data * share, acks * share


def from_waiting(data: Floats, acks: Floats, node: int) -> float:
    """Log of what waits behind the node's Tx against behind its Rx."""
    tx = float(data[node].sum() + acks[:, node].sum())
    rx = float(data[:, node].sum() + acks[node].sum())
    if max(tx, rx) < LEAST_BYTES:
        return float("nan")
    return _limited(float(np.log((tx + LEAST_BYTES) / (rx + LEAST_BYTES))))


def legs(data: Floats, acks: Floats, node: int) -> tuple[float, int | None]:
    """Whether what waits at a node waits for one peer only: share of the second peer against the first, and the first.

    A slow NIC holds up data to or from one ring neighbour and acknowledgements of the other; a slow link holds up one
    pair.  What waits at a typical node anyway is taken off.
    """
    sent, received = data + acks.T, data.T + acks
    ways = (sent, received)
    way = ways[int(received[node].sum() > sent[node].sum())]
    usual = float(np.median(np.sort(way, axis=1)[:, -2:]))
    over = np.maximum(way[node] - usual, 0.0)
    order = np.argsort(over)
    if over[order[-1]] < LEAST_BYTES:
        return float("nan"), None
    return float(over[order[-2]] / over[order[-1]]), int(order[-1])


class Delays:
    """One-way delays per pair, as passes and probes measure them."""

    def __init__(self, nodes: int, keep_s: float) -> None:
        self._nodes, self._keep_s = nodes, keep_s
        self._called: dict[tuple[int, int], tuple[float, int]] = {}  # (step, rank) -> called, receives from
        self._waiting: dict[
            tuple[int, int], tuple[int, float, float]
        ] = {}  # (step, source rank) -> node, called, received
        self.samples: deque[tuple[float, int, int, float]] = deque()  # at, source node, target node, seconds

    def see(self, seen: Observation) -> None:
        """Take a pass (both sides are needed) or a probe."""
        values = seen.values
        if isinstance(values, Probe) and seen.peer is not None:
            self._add(seen.at_s, seen.peer, seen.node, values.received_s - values.sent_s)
        elif isinstance(values, Pass) and seen.rank is not None and values.step is not None:
            self._pass(seen.rank, seen.node, values, values.step)

    def excess(self, from_s: float, to_s: float) -> tuple[Floats, Floats]:
        """Log of the median delay now over the usual one (of before, else of the peers), and its standard error."""
        before, now = self._by_pair(-np.inf, from_s), self._by_pair(from_s, to_s)
        log = np.full((self._nodes, self._nodes), np.nan)
        error = np.full_like(log, np.nan)
        typical = [np.median(v) for v in now.values()]
        for pair, values in now.items():
            usual = before.get(pair, np.array([]))
            reference = float(np.median(usual)) if usual.size >= 10 else float(np.median(typical))
            scatter = NORMAL * float(np.median(np.abs(values - np.median(values))))
            log[pair] = float(np.median(values)) - reference
            error[pair] = 1.2533 * max(scatter, 0.1) / np.sqrt(values.size)
        return log, error

    def _by_pair(self, from_s: float, to_s: float) -> dict[tuple[int, int], Floats]:
        found: dict[tuple[int, int], list[float]] = {}
        for at_s, source, target, delay_s in self.samples:
            if from_s < at_s <= to_s:
                found.setdefault((source, target), []).append(np.log(max(delay_s, 1e-5)))
        return {pair: np.array(values) for pair, values in found.items() if len(values) >= 3}

    def _pass(self, rank: int, node: int, values: Pass, step: int) -> None:
        self._called[step, rank] = (values.called_s, node)
        self._waiting[step, values.source] = (node, values.called_s, values.received_s)
        for source in (rank, values.source):
            self._match(step, source)
        for table in (self._called, self._waiting):
            for key in [k for k in table if k[0] < step - 8]:
                del table[key]

    def _match(self, step: int, source: int) -> None:
        sent, got = self._called.get((step, source)), self._waiting.get((step, source))
        if sent is None or got is None:
            return
        del self._waiting[step, source]
        target, called_s, received_s = got
        self._add(received_s, sent[1], target, received_s - max(sent[0], called_s))

    def _add(self, at_s: float, source: int, target: int, delay_s: float) -> None:
        if source == target or not (0 <= source < self._nodes and 0 <= target < self._nodes):
            return
        self.samples.append((at_s, source, target, delay_s))
        while self.samples[0][0] < at_s - self._keep_s:
            self.samples.popleft()


def from_delays(log: Floats, error: Floats, node: int) -> float:
    """Log ratio of what it delays of its own against what it is late to receive, as far as noise lets it be sure."""
    out, out_error = _strongest(log[node], error[node])
    into, into_error = _strongest(log[:, node], error[:, node])
    if not (np.isfinite(out) and np.isfinite(into)):
        return float("nan")
    difference, doubt = max(out, 0.0) - max(into, 0.0), float(np.hypot(out_error, into_error))
    if abs(difference) < 3 * doubt:
        return float("nan")
    return _limited(difference)


def beyond(log: Floats, error: Floats, node: int, peer: int) -> tuple[float, float]:
    """What the sender of a pair delays on its way to others, and what the receiver gets late from others.

    Beyond what goes the other way: a rank that is itself behind is late with both.
    """
    out = np.delete(log[node], peer), np.delete(error[node], peer)
    into = np.delete(log[:, peer], node), np.delete(error[:, peer], node)
    return _more(out, (log[:, node], error[:, node])), _more(into, (log[peer], error[peer]))


def _more(one: tuple[Floats, Floats], other: tuple[Floats, Floats]) -> float:
    """By how much one way is slower than the other, 0 where that is not sure."""
    (log, error), (back, doubt) = _strongest(*one), _strongest(*other)
    more = log - max(back, 0.0) if np.isfinite(back) else log
    return more if more > 3 * np.hypot(error, np.nan_to_num(doubt)) else 0.0  # NaN is never sure


def _strongest(log: Floats, error: Floats) -> tuple[float, float]:
    known = np.flatnonzero(np.isfinite(log))
    if known.size == 0:
        return float("nan"), float("nan")
    middle = known[np.argsort(log[known])[known.size // 2]]
    return float(log[middle]), float(error[middle])


def _limited(value: float) -> float:
    return float(np.clip(value, -MOST, MOST))


def _nearest(rows: list[Row], times: Floats, at_s: float, within_s: float) -> Row | None:
    if not rows:
        return None
    at = int(np.abs(times - at_s).argmin())
    return rows[at] if abs(rows[at].at_s - at_s) <= within_s else None
