"""Locates queued bytes: one-way evidence from counters of both ends, read at one time.

    o_ij = median over the past of (received_j - acked_i) / b_ij - (t_j - t_i) while busy, without the common part

A clock offset is a constant part of o and cancels; so does a slow drift, as far as the past is recent; the part common
to all pairs stays.  Most healthy pairs have few bytes in flight and so no such past: theirs comes from messages
(`ahead_of`), or half of the outstanding bytes count as data, which is neutral.  Without passes the clocks are taken as
aligned.  docs/explanation/faults/slow.md, "Location of queued bytes"
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from faults.diagnosis import Direction
from faults.fabric import Floats
from faults.slow.settings import SlowSettings
from faults.slow.sockets import ACKED, RECEIVED, UNACKED, Row, Sockets

MIN_BYTES: Final = 3000.0  # two packets: queued on any path
MIN_POLLS: Final = 12  # of the past, before it is used
MIN_BUSY: Final = 6  # of them with bytes in flight
KEPT_POLLS: Final = 60  # 15 s at 4 Hz
SECOND_LEG: Final = 0.2  # of the first peer's waiting bytes: above, a second peer shows that the NIC is slow
# Of one window, in nats.  Between healthy windows the log ratio scatters by about 0.6; a pure Tx or Rx shows 1.5.
PER_LOG: Final = 2.0
MAX_NATS: Final = 3.0
LEG_NATS: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Moment:
    at_s: float
    behind: Floats  # received_j - acked_i
    out: Floats  # U
    apart_s: Floats  # t_j - t_i


@dataclass(frozen=True, slots=True)
class Waits:
    """Mean bytes in flight in one window: of data F and of acknowledgements A."""

    data: Floats
    acks: Floats

    def sides(self, node: int) -> tuple[float, float]:
        sent, received = self._ways()
        return float(sent[node].sum()), float(received[node].sum())

    def nats(self, node: int, way: Direction) -> float:
        tx, rx = self.sides(node)
        if max(tx, rx) < MIN_BYTES or way not in (Direction.TX, Direction.RX):
            return 0.0
        nats = float(np.clip(PER_LOG * np.log((tx + MIN_BYTES) / (rx + MIN_BYTES)), -MAX_NATS, MAX_NATS))
        return nats if way is Direction.TX else -nats

    def legs(self, node: int) -> tuple[float, int | None]:
        """Return the share of the second peer in the bytes that wait at a node against the first, and the first.

        A slow NIC holds up data of one ring neighbour and acknowledgements of the other; a slow link those of one pair.
        The bytes that wait at a typical node are subtracted.
        """
        ways = self._ways()
        way = ways[int(ways[1][node].sum() > ways[0][node].sum())]
        over = np.maximum(way[node] - float(np.median(np.sort(way, axis=1)[:, -2:])), 0.0)
        order = np.argsort(over)
        if over[order[-1]] < MIN_BYTES:
            return float("nan"), None
        return float(over[order[-2]] / over[order[-1]]), int(order[-1])

    def _ways(self) -> tuple[Floats, Floats]:
        return self.data + self.acks.T, self.data.T + self.acks


class Waiting:
    """Queued bytes over time, and the clock offsets of both ends."""

    def __init__(self, sockets: Sockets, settings: SlowSettings) -> None:
        self._sockets, self._settings = sockets, settings
        self._moments: deque[_Moment] = deque()
        self._past: deque[_Moment] = deque(maxlen=KEPT_POLLS)

    def take(self, now_s: float, *, suspected: bool, baseline_age_s: float) -> None:
        last_s = self._moments[-1].at_s if self._moments else now_s - self._settings.window_s
        polls = max(self._sockets.rows, key=len)  # of any node: one without an agent has none
        for at_s in sorted({row.at_s for row in polls if last_s < row.at_s <= now_s}):
            moment = self._moment(at_s)
            if moment is not None:
                self._moments.append(moment)
        while self._moments and self._moments[0].at_s < now_s - (2 * baseline_age_s if suspected else baseline_age_s):
            moment = self._moments.popleft()
            if not suspected:
                self._past.append(moment)

    def window(
        self, from_s: float, to_s: float, *, now_mbit: Floats, usual_mbit: Floats, clock_offsets_s: Floats
    ) -> Waits:
        rate = np.nan_to_num(now_mbit) * 1e6 / 8
        otherwise_s = -clock_offsets_s if np.isfinite(clock_offsets_s).any() else np.zeros_like(rate)
        offset_s = self._offsets(np.nan_to_num(usual_mbit) * 1e6 / 8, otherwise_s)
        moments = [moment for moment in self._moments if from_s <= moment.at_s <= to_s]
        data, acks = np.zeros_like(rate), np.zeros_like(rate)
        for moment in moments:
            out = np.where(moment.out > MIN_BYTES, moment.out, 0.0)  # NaN is not more
            reported = np.clip(moment.behind - rate * (moment.apart_s + offset_s), 0.0, out)
            back = np.nan_to_num(np.where(np.isfinite(offset_s), reported, out / 2.0))
            acks += back
            data += out - back
        count = max(1, len(moments))
        return Waits(data / count, acks / count)

    def _offsets(self, rate: Floats, otherwise_s: Floats) -> Floats:
        """Return the offset of each pair; the fallback if the past has too few times."""
        if len(self._past) < MIN_POLLS:
            return otherwise_s
        busy = np.array([moment.out > MIN_BYTES for moment in self._past]) & (rate > 0)
        safe = np.where(rate > 0, rate, 1.0)
        shifts = np.array([moment.behind / safe - moment.apart_s for moment in self._past])
        busy &= np.isfinite(shifts)
        count = busy.sum(axis=0)
        middle = np.sort(np.where(busy, shifts, np.inf), axis=0)
        offsets = np.take_along_axis(middle, (count // 2)[None].clip(max=len(shifts) - 1), axis=0)[0]
        enough = count >= MIN_BUSY
        shared = (offsets - otherwise_s)[enough & np.isfinite(otherwise_s)]
        if not shared.size:
            return otherwise_s
        return np.where(enough, offsets - float(np.median(shared)), otherwise_s)

    def _moment(self, at_s: float) -> _Moment | None:
        rows = [_nearest(line, at_s, self._settings.aligned_s) for line in self._sockets.rows]
        known = [row for row in rows if row is not None]
        if len(known) < 2:
            return None
        empty = np.full_like(known[0].peers, np.nan)
        peers = np.array([empty if row is None else row.peers for row in rows])
        seconds = np.array([np.nan if row is None else row.at_s for row in rows])
        out = peers[:, :, UNACKED] * self._settings.segment_bytes
        return _Moment(at_s, peers[:, :, RECEIVED].T - peers[:, :, ACKED], out, seconds[None, :] - seconds[:, None])


def _nearest(rows: deque[Row], at_s: float, within_s: float) -> Row | None:
    best: Row | None = None
    for row in reversed(rows):
        if abs(row.at_s - at_s) <= min(within_s, np.inf if best is None else abs(best.at_s - at_s)):
            best = row
        if row.at_s < at_s - within_s:
            break
    return best
