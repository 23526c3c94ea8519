"""A dump of INET_DIAG as one row of counters per peer, with as little work per look as can be.

Layouts are the kernel's (include/uapi/linux/inet_diag.h, tcp.h): nlmsghdr 16 bytes, inet_diag_msg 72, attributes, of
which INET_DIAG_INFO holds tcp_info.  tcp_info only ever grew at its end, so a field's offset is the same in every
kernel that has it, and what an older one lacks counts as 0.  All messages of a dump have one shape, nearly always: then
the dump is a matrix of 32-bit words, and all fields of all sockets are one selection of its elements.  Which those are,
and which rows belong together, is remembered for as long as the sockets are the same ones.
"""

import struct
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deploy.recorder.netlink import INET_DIAG_INFO, SOCK_DIAG_BY_FAMILY, TCPDIAG_GETSOCK
from deploy.recorder.peers import Peers
from faults.observations import Look, Observation, Socket

Ints = NDArray[np.int64]
Words = NDArray[np.uint32]
Dump = bytes | memoryview

MESSAGE_BYTES: Final = 16 + 72
MOST_SHAPES: Final = 16  # remembered
_KINDS: Final = (SOCK_DIAG_BY_FAMILY, TCPDIAG_GETSOCK)
_TIMER_RETRANSMIT: Final = 1

# Words of nlmsghdr and inet_diag_msg.
_LENGTH, _KIND, _PORTS, _TARGET, _READ_QUEUE, _WRITE_QUEUE = 0, 1, 5, 10, 18, 19
_IDENTITY: Final = slice(_PORTS, 17)  # ports, addresses, interface and cookie: of one socket and no other
_IDENTITY_BYTES: Final = 4 * 12

# Where each field of `Socket` lies, in the order in which they are taken: words of tcp_info or of the message, by what
# becomes of several connections to one peer.
_WIDE: Final = {
    "acked_bytes": 120,
    "received_bytes": 128,
    "busy_us": 168,
    "rwnd_limited_us": 176,
    "sndbuf_limited_us": 184,
}
_ADDED: Final = {"cwnd": 80, "unacked": 24, "unsent_bytes": 144, "retransmits": 100}
_LARGEST: Final = {"rtt_us": 68, "rto_us": 8}
_LEAST: Final = {"min_rtt_us": 148, "since_sent_ms": 44, "since_received_ms": 52}
_QUEUES: Final = {"write_queue_bytes": _WRITE_QUEUE, "read_queue_bytes": _READ_QUEUE}
_BACKOFF_BYTE: Final = 4  # of tcp_info
_TIMER_BYTE, _TRIES_BYTE = 18, 19  # of the message


def _at(names: Iterable[str]) -> list[int]:
    return [Socket._fields.index(name) for name in names]


_WIDE_AT, _ADDED_AT = _at(_WIDE), _at([*_ADDED, *_QUEUES])
_LARGEST_AT, _LEAST_AT = _at(_LARGEST), _at(_LEAST)
_TRIES_AT, _BACKOFF_AT = _at(["timer_retransmits", "backoff"])
_ENDS: Final = np.cumsum([2 * len(_WIDE), len(_ADDED_AT), len(_LARGEST), len(_LEAST)]).tolist()


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


class _Shape(NamedTuple):
    """Of a message, in words."""

    words: int
    info_at: int
    info_words: int


class _Selection(NamedTuple):
    """What to take of a matrix of messages, by the sockets in it.  Elements are counted through the whole matrix."""

    identity: bytes
    peers: Ints  # in rising order
    connections: Ints  # to each
    starts: NDArray[np.intp]  # the first row of each
    words: NDArray[np.intp]  # rows x words
    octets: NDArray[np.intp]  # rows x (timer, tries, backoff)
    absent: list[int]  # columns that the kernel has not


class DumpReader:
    """Reads the dumps of one namespace.  A port is ignored at either end."""

    def __init__(self, peers: Peers, *, ignored_ports: AbstractSet[int] = frozenset()) -> None:
        self._node_of = peers.keys
        self._ignored_ports = np.array(sorted(ignored_ports), np.uint16)
        self._known: dict[_Shape, _Selection] = {}

    def sample(self, dump: Dump, *, at_s: float, node: int) -> Sample:
        """What one look says of the peers."""
        parts = [self._part(words, shape) for words, shape in self._shapes(dump)]
        if len(parts) == 1:
            return Sample(at_s, node, *parts[0])
        peers = np.concatenate([np.empty(0, np.int64), *(part[0] for part in parts)])
        rows = np.concatenate([np.empty((0, len(Socket._fields)), np.int64), *(part[1] for part in parts)])
        return Sample(at_s, node, *_merged(peers, rows))

    def _shapes(self, dump: Dump) -> Iterator[tuple[Words, _Shape]]:
        """Where the sockets of the last look are all there is, its shape is this one's."""
        if len(self._known) == 1:
            (shape, selection), *_ = self._known.items()
            if len(dump) == len(selection.identity) // _IDENTITY_BYTES * shape.words * 4:
                words = np.frombuffer(dump, "<u4").reshape(-1, shape.words)
                if words[:, _IDENTITY].tobytes() == selection.identity:
                    return iter([(words, shape)])
        return shapes(dump)

    def _part(self, words: Words, shape: _Shape) -> tuple[Ints, Ints]:
        """(peers, a row for each), of the sockets that lead to one."""
        identity = words[:, _IDENTITY].tobytes()
        known = self._known.get(shape)
        if known is None or known.identity != identity:
            if len(self._known) >= MOST_SHAPES:
                self._known.clear()
            known = self._known[shape] = self._selection(words, shape, identity)
        return known.peers, _rows(words, known)

    def _selection(self, words: Words, shape: _Shape, identity: bytes) -> _Selection:
        targets = words[:, _TARGET : _TARGET + 4].tobytes()
        peer = np.array([self._node_of.get(targets[at : at + 16], -1) for at in range(0, len(targets), 16)], np.int64)
        if len(self._ignored_ports):
            ports = np.ascontiguousarray(words[:, _PORTS]).view(">u2").reshape(-1, 2)
            peer[np.isin(ports, self._ignored_ports).any(axis=1)] = -1
        order = np.argsort(peer, kind="stable")
        order = order[peer[order] >= 0]
        peers, starts, connections = np.unique(peer[order], return_index=True, return_counts=True)
        taken, absent = _columns(shape)
        octets = np.array([_TIMER_BYTE, _TRIES_BYTE, 4 * shape.info_at + _BACKOFF_BYTE])
        row = order[:, None] * shape.words
        return _Selection(identity, peers, connections, starts, row + taken, 4 * row + octets, absent)


def shapes(dump: Dump) -> Iterator[tuple[Words, _Shape]]:
    """(messages x words, their shape) for each shape of message that has tcp_info."""
    length = struct.unpack_from("=I", dump)[0] if len(dump) >= MESSAGE_BYTES else 0
    if length >= MESSAGE_BYTES and length % 4 == 0 and len(dump) % length == 0:
        words = np.frombuffer(dump, "<u4").reshape(-1, length // 4)
        at, size = _info(dump[:length])
        alike = (words[:, [_LENGTH, _KIND, at - 1]] == words[0, [_LENGTH, _KIND, at - 1]]).all()
        if at and alike and (words[0, _KIND] & 0xFFFF) in _KINDS:
            yield words, _Shape(length // 4, at, size)
            return
    yield from _sorted_out(bytes(dump))


def _sorted_out(dump: bytes) -> Iterator[tuple[Words, _Shape]]:
    """The same for messages of several shapes, one at a time."""
    by_shape: dict[_Shape, list[bytes]] = {}
    at = 0
    while at + MESSAGE_BYTES <= len(dump):
        length, kind = struct.unpack_from("=IH", dump, at)
        if length < 16 or at + length > len(dump):
            break  # cut off
        if kind in _KINDS and length >= MESSAGE_BYTES:
            message = dump[at : at + (length & ~3)]
            info_at, info_words = _info(message)
            if info_at:
                by_shape.setdefault(_Shape(len(message) // 4, info_at, info_words), []).append(message)
        at += (length + 3) & ~3
    for shape, messages in by_shape.items():
        yield np.frombuffer(b"".join(messages), "<u4").reshape(-1, shape.words), shape


def _info(message: Dump) -> tuple[int, int]:
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


def _columns(shape: _Shape) -> tuple[Ints, list[int]]:
    """Words of a message in the order of `_rows`, and the columns of `Socket` that an older kernel lacks."""
    taken: list[int] = []
    absent: list[int] = []

    def take(name: str, inner: int, words: int) -> None:
        has = inner + words <= shape.info_words
        taken.extend(shape.info_at + inner + half if has else _LENGTH for half in range(words))
        absent.extend([] if has else _at([name]))

    for name, offset in _WIDE.items():
        take(name, offset // 4, 2)
    for name, offset in _ADDED.items():
        take(name, offset // 4, 1)
    taken += _QUEUES.values()
    for name, offset in (_LARGEST | _LEAST).items():
        take(name, offset // 4, 1)
    return np.array(taken, np.int64), absent


def _rows(words: Words, of: _Selection) -> Ints:
    """A row of `Socket` for each peer."""
    rows = np.empty((len(of.peers), len(Socket._fields)), np.int64)
    if not len(rows):
        return rows
    taken = words.reshape(-1).take(of.words, mode="clip")
    octets = words.reshape(-1).view(np.uint8).take(of.octets, mode="clip")
    wide, added, largest, least = _ENDS
    sums = np.add.reduceat(taken[:, :added], of.starts, axis=0, dtype=np.int64)
    rows[:, 0] = of.connections
    rows[:, _WIDE_AT] = sums[:, 0:wide:2] + (sums[:, 1:wide:2] << 32)
    rows[:, _ADDED_AT] = sums[:, wide:]
    rows[:, _LARGEST_AT] = np.maximum.reduceat(taken[:, added:largest], of.starts, axis=0)
    rows[:, _LEAST_AT] = np.minimum.reduceat(taken[:, largest:least], of.starts, axis=0)
    tries = octets[:, 1] * (octets[:, 0] == _TIMER_RETRANSMIT)  # of another timer the count means something else
    rows[:, _TRIES_AT] = np.add.reduceat(tries, of.starts, dtype=np.int64)
    rows[:, _BACKOFF_AT] = np.maximum.reduceat(octets[:, 2], of.starts)
    if of.absent:
        rows[:, of.absent] = 0
    return rows


def _merged(peers: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Rows of dumps with several shapes: one for each peer."""
    order = np.argsort(peers, kind="stable")
    rows = rows[order]
    merged, starts = np.unique(peers[order], return_index=True)
    if not len(starts):
        return merged, rows
    joined = np.add.reduceat(rows, starts, axis=0)
    for columns, reduced in (([*_LARGEST_AT, _BACKOFF_AT], np.maximum), (_LEAST_AT, np.minimum)):
        joined[:, columns] = reduced.reduceat(rows[:, columns], starts, axis=0)
    return merged, joined
