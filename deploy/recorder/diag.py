"""A dump of INET_DIAG as one row of counters per peer, with as little work per look as can be.

Layouts are the kernel's (include/uapi/linux/inet_diag.h, tcp.h): nlmsghdr 16 bytes, inet_diag_msg 72, attributes, of
which INET_DIAG_INFO holds tcp_info.  tcp_info only ever grew at its end, so a field's offset is the same in every
kernel that has it, and what an older one lacks counts as 0.  All messages of a dump have one shape, nearly always: then
the dump is a matrix of 32-bit words, and all fields of all sockets are one selection of its columns.
"""

import struct
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deploy.recorder.netlink import INET_DIAG_INFO, SOCK_DIAG_BY_FAMILY
from deploy.recorder.peers import Peers
from faults.observations import Look, Observation, Socket

Ints = NDArray[np.int64]
Words = NDArray[np.uint32]

MESSAGE_BYTES: Final = 16 + 72
_TIMER_RETRANSMIT: Final = 1
_NOWHERE: Final = -1

# Words of nlmsghdr and inet_diag_msg.
_LENGTH, _KIND, _STATE, _PORTS, _TARGET, _READ_QUEUE, _WRITE_QUEUE = 0, 1, 4, 5, 10, 18, 19

# Of tcp_info, in bytes: counters of 64 bits, and words of 32.
_WIDE: Final = {"acked": 120, "received": 128, "busy": 168, "rwnd_limited": 176, "sndbuf_limited": 184}
_PLAIN: Final = {
    "rtt": 68,
    "min_rtt": 148,
    "cwnd": 80,
    "unacked": 24,
    "notsent": 144,
    "total_retrans": 100,
    "backoff": 4,  # the first byte of the word
    "rto": 8,
    "since_sent": 44,
    "since_received": 52,
}
# Of several connections to one peer counters and queues add up; of the rest:
_LARGEST: Final = tuple(map(Socket._fields.index, ("rtt_us", "backoff", "rto_us")))
_LEAST: Final = tuple(map(Socket._fields.index, ("min_rtt_us", "since_sent_ms", "since_received_ms")))


class Sample(NamedTuple):
    """One look at all sockets: a row per peer, columns as in `Socket`."""

    at_s: float
    node: int
    peers: Ints
    rows: Ints

    def observations(self) -> list[Observation]:
        """As the detectors take it: the look first, then each peer."""
        seen = [Observation(self.at_s, self.node, Look(len(self.peers)))]
        for peer, row in zip(self.peers.tolist(), self.rows.tolist(), strict=True):
            seen.append(Observation(self.at_s, self.node, Socket(*row), peer=peer))
        return seen


def sample_of(
    dumps: list[bytes], *, peers: Peers, ignored_ports: AbstractSet[int] = frozenset(), at_s: float, node: int
) -> Sample:
    """What all dumps of one look say of the peers.  A port is ignored at either end."""
    found = [part for dump in dumps for words in shapes(dump) if (part := _rows(words, peers, ignored_ports))]
    if not found:
        return Sample(at_s, node, np.empty(0, np.int64), np.empty((0, len(Socket._fields)), np.int64))
    if len(found) == 1:
        peer, rows = found[0]
    else:
        peer, rows = np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])
    return Sample(at_s, node, *_joined(peer, rows))


def shapes(dump: bytes) -> Iterator[tuple[Words, int, int]]:
    """(messages x words, where tcp_info begins, words of it) for each shape of message that has tcp_info."""
    length = struct.unpack_from("=I", dump)[0] if len(dump) >= MESSAGE_BYTES else 0
    if length >= MESSAGE_BYTES and length % 4 == 0 and len(dump) % length == 0:
        words = np.frombuffer(dump, "<u4").reshape(-1, length // 4)
        at, size = _info(dump[:length])
        alike = (words[:, [_LENGTH, at - 1]] == words[0, [_LENGTH, at - 1]]).all() and _is_diag(words).all()
        if at and alike:
            yield words, at, size
            return
    yield from _sorted_out(dump)


def _sorted_out(dump: bytes) -> Iterator[tuple[Words, int, int]]:
    """The same for messages of several shapes, one at a time."""
    by_shape: dict[tuple[int, int, int], list[bytes]] = {}
    at = 0
    while at + MESSAGE_BYTES <= len(dump):
        length, kind = struct.unpack_from("=IH", dump, at)
        if length < 16 or at + length > len(dump):
            break  # cut off
        if kind == SOCK_DIAG_BY_FAMILY and length >= MESSAGE_BYTES:
            message = dump[at : at + (length & ~3)]
            info = _info(message)
            if info[0]:
                by_shape.setdefault((len(message), *info), []).append(message)
        at += (length + 3) & ~3
    for (length, info_at, info_words), messages in by_shape.items():
        yield np.frombuffer(b"".join(messages), "<u4").reshape(-1, length // 4), info_at, info_words


def _is_diag(words: Words) -> NDArray[np.bool_]:
    kinds: NDArray[np.bool_] = (words[:, _KIND] & 0xFFFF) == SOCK_DIAG_BY_FAMILY
    return kinds


def _info(message: bytes) -> tuple[int, int]:
    """The word at which tcp_info begins in a message, and how many words it has; (0, 0) where there is none."""
    inner = MESSAGE_BYTES
    while inner + 4 <= len(message):
        size, kind = struct.unpack_from("=HH", message, inner)
        if size < 4 or inner + size > len(message):
            break
        if kind == INET_DIAG_INFO:
            return (inner + 4) // 4, (size - 4) // 4
        inner += (size + 3) & ~3
    return 0, 0


def _rows(shape: tuple[Words, int, int], peers: Peers, ignored_ports: AbstractSet[int]) -> tuple[Ints, Ints] | None:
    """(peer per socket, sockets x columns) of those that lead to a peer."""
    words, info_at, info_words = shape
    node_of, targets = peers.keys, words[:, _TARGET : _TARGET + 4].tobytes()
    peer = np.array([node_of.get(targets[at : at + 16], -1) for at in range(0, len(targets), 16)], np.int64)
    if ignored_ports:
        ports = words[:, _PORTS].astype("<u4").view(">u2").reshape(-1, 2).tolist()
        peer[[source in ignored_ports or to in ignored_ports for source, to in ports]] = _NOWHERE
    kept = np.flatnonzero(peer >= 0)
    if len(kept) == 0:
        return None
    if len(kept) < len(peer):
        peer, words = peer[kept], words[kept]
    columns, absent = _columns(words.shape[1], info_at, info_words)
    wide = words[:, columns].astype(np.int64)
    if absent:
        wide[:, list(absent)] = 0
    return peer, _as_socket(wide)


@lru_cache(maxsize=64)
def _columns(width: int, info_at: int, info_words: int) -> tuple[Ints, tuple[int, ...]]:
    """The words to take of a message, and which of them an older kernel has not."""
    offsets = [_STATE, _READ_QUEUE, _WRITE_QUEUE]
    in_info = [at // 4 + half for at in _WIDE.values() for half in (0, 1)] + [at // 4 for at in _PLAIN.values()]
    absent = tuple(at + len(offsets) for at, word in enumerate(in_info) if word >= info_words)
    return np.array([*offsets, *(min(info_at + word, width - 1) for word in in_info)]), absent


def _as_socket(wide: Ints) -> Ints:
    """Words in the order of `_columns` as rows in the order of `Socket`."""
    state, read_queue, write_queue = wide[:, 0], wide[:, 1], wide[:, 2]
    halves = wide[:, 3:13]
    counted = halves[:, 0::2] + (halves[:, 1::2] << 32)  # acked, received, busy, rwnd_limited, sndbuf_limited
    plain = wide[:, 13:]
    rows = np.empty((len(wide), len(Socket._fields)), np.int64)
    rows[:, 0] = 1
    rows[:, 1:6] = counted
    rows[:, 6:10] = plain[:, :4]  # rtt, min_rtt, cwnd, unacked
    rows[:, 10] = write_queue
    rows[:, 11] = read_queue
    rows[:, 12:14] = plain[:, 4:6]  # notsent, total_retrans
    retransmit_timer = (state >> 16 & 0xFF) == _TIMER_RETRANSMIT  # of another timer the count means something else
    rows[:, 14] = np.where(retransmit_timer, state >> 24, 0)
    rows[:, 15] = plain[:, 6] & 0xFF  # backoff
    rows[:, 16:19] = plain[:, 7:]
    return rows


def _joined(peer: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """One row for each peer, in rising order."""
    if len(peer) > 1:
        order = np.argsort(peer, kind="stable")
        peer, rows = peer[order], rows[order]
    first = np.empty(len(peer), np.bool_)
    first[0] = True
    np.not_equal(peer[1:], peer[:-1], out=first[1:])
    if first.all():
        return peer, rows
    starts = np.flatnonzero(first)
    joined = np.add.reduceat(rows, starts, axis=0)
    largest = np.maximum.reduceat(rows[:, _LARGEST], starts, axis=0)
    joined[:, _LARGEST] = largest
    joined[:, _LEAST] = np.minimum.reduceat(rows[:, _LEAST], starts, axis=0)
    return peer[starts], joined
