"""The reply to a probe: the receiver's measurement, one small datagram for a whole train.

With it a reading is known if either end reports.  A reply names the train by the sender's number and time, so only a
sent train can get a reply, and once.  It is smaller than its train, goes only to a peer's known address and gets no
reply, so it cannot amplify traffic.
"""

import struct
from collections import deque
from math import isfinite, isnan, nan
from typing import Final, NamedTuple

from faults.observations import Probe, ProbeReturned

REPLY: Final = struct.Struct("!8sIIIddd")  # the mark, then a _Reply
MARK: Final = b"fwprobew"
MAX_PENDING: Final = 16  # trains of a peer: a reply arrives by the next poll
LATEST_S: Final = 1e11  # of a clock
MAX_TRAIN_S: Final = 60.0  # of a train's second half


class _Reply(NamedTuple):
    node: int  # that received the train
    number: int
    size_bytes: int
    sent_s: float
    received_s: float
    tail_s: float  # NaN: none


class PendingTrains:
    """The newest trains sent to each peer."""

    def __init__(self, *, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._sent: dict[int, deque[tuple[int, float]]] = {}  # by peer: numbers and moments

    def sent(self, peer: int, number: int, sent_s: float) -> None:
        self._sent.setdefault(peer, deque(maxlen=MAX_PENDING)).append((number, sent_s))

    def taken(self, message: bytes, of: int | None) -> tuple[int, ProbeReturned] | None:
        """Return the peer and its reading; None unless the reply is from node `of` and to a train that awaits one."""
        reply = _Reply(*REPLY.unpack(message)[1:]) if is_reply(message) else None
        if reply is None or reply.node != of or reply.size_bytes != self._size_bytes or not _is_sane(reply):
            return None
        waiting = self._sent.get(reply.node, ())
        if (reply.number, reply.sent_s) not in waiting:
            return None
        self._sent[reply.node].remove((reply.number, reply.sent_s))
        tail_s = None if isnan(reply.tail_s) else reply.tail_s
        return reply.node, ProbeReturned(reply.size_bytes, reply.sent_s, reply.received_s, tail_s)


def is_reply(message: bytes) -> bool:
    return len(message) == REPLY.size and message.startswith(MARK)


def reply_of(node: int, number: int, probe: Probe) -> bytes | None:
    """Return the reply of `node` to a received train; None if the train was smaller than the reply."""
    if probe.size_bytes < REPLY.size:
        return None
    tail_s = nan if probe.tail_s is None else probe.tail_s
    return REPLY.pack(MARK, node, number, probe.size_bytes, probe.sent_s, probe.received_s, tail_s)


def _is_sane(reply: _Reply) -> bool:
    known = isfinite(reply.received_s) and 0.0 <= reply.received_s < LATEST_S
    return known and (isnan(reply.tail_s) or 0.0 < reply.tail_s <= MAX_TRAIN_S)
