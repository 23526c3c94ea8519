"""Reads INET_DIAG messages as one row of counters per peer, with little work per poll.

Layouts are the kernel's (include/uapi/linux/inet_diag.h, tcp.h): nlmsghdr 16 bytes, inet_diag_msg 72, then attributes,
of which INET_DIAG_INFO holds tcp_info.  tcp_info grows only at its end, so a field's offset is the same in every kernel
that has it; a field that an older kernel lacks counts as 0.  Messages of one shape, nearly always all, form a matrix of
32-bit words, in which a field of all sockets at several polls is one column.  The mapping from rows to peers is
computed once while the sockets stay the same (`Known`), and rows are in the order of peers.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deploy.telemetry.netlink import INET_DIAG_INFO, SOCK_DIAG_BY_FAMILY, TCPDIAG_GETSOCK
from deploy.telemetry.peers import Peers
from faults.observations import Observation, Socket, SocketPoll

Ints = NDArray[np.int64]
Words = NDArray[np.uint32]
Dump = bytes | memoryview

MESSAGE_BYTES: Final = 16 + 72
_KINDS: Final = (SOCK_DIAG_BY_FAMILY, TCPDIAG_GETSOCK)
_TIMER_RETRANSMIT: Final = 1

# Words of nlmsghdr and inet_diag_msg.
_LENGTH, _KIND, STATE, PORTS, _TARGET, _READ_QUEUE, _WRITE_QUEUE = 0, 1, 4, 5, 10, 18, 19
IDENTITY: Final = slice(PORTS, 17)  # ports, addresses, interface and cookie: they identify a socket
LENGTH_BYTE, KIND_BYTE, STATE_BYTE = 4 * _LENGTH, 4 * _KIND, 4 * STATE + 1

# Where each field of `Socket` lies, in the order of reading: words of tcp_info or of the message, grouped by how
# several connections to one peer are combined.
_WIDE: Final = {
    "acked_bytes": 120,
    "received_bytes": 128,
    "busy_us": 168,
    "rwnd_limited_us": 176,
    "sndbuf_limited_us": 184,
}
_ADDED: Final = {"cwnd": 80, "unacked": 24, "unsent_bytes": 144, "retransmits": 100}
_LARGEST: Final = {"rtt_us": 68, "rto_us": 8}
_MIN: Final = {"min_rtt_us": 148, "since_sent_ms": 44, "since_received_ms": 52}
_QUEUES: Final = {"write_queue_bytes": _WRITE_QUEUE, "read_queue_bytes": _READ_QUEUE}
_BACKOFF: Final = 1  # this word of tcp_info, its lowest octet


def _at(names: Iterable[str]) -> list[int]:
    return [Socket._fields.index(name) for name in names]


_WIDE_AT, _ADDED_AT = _at(_WIDE), _at([*_ADDED, *_QUEUES])
_LARGEST_AT, _MIN_AT = _at(_LARGEST), _at(_MIN)
_TRIES_AT, _BACKOFF_AT = _at(["timer_retransmits", "backoff"])
_ENDS: Final = np.cumsum([2 * len(_WIDE), len(_ADDED_AT), len(_LARGEST), len(_MIN)]).tolist()


class Sample(NamedTuple):
    """One poll of all sockets: a row per peer, columns as in `Socket`."""

    at_s: float
    node: int
    peers: Ints
    rows: Ints

    def observations(self) -> list[Observation]:
        at_s, node, of_row = self.at_s, self.node, Socket._make
        rows = zip(self.peers.tolist(), self.rows.tolist(), strict=True)
        poll = Observation(at_s, node, SocketPoll(len(self.peers)))
        return [poll, *(Observation(at_s, node, of_row(row), None, peer) for peer, row in rows)]


class Shape(NamedTuple):
    """The shape of a message; sizes are in words."""

    words: int
    info_at: int
    info_words: int


class Group(NamedTuple):
    """Sockets of one shape that lead to peers, in the order of peers."""

    shape: Shape
    identity: bytes  # of each socket, in their order
    rows: int
    peers: Ints  # in rising order
    connections: Ints  # to each
    starts: NDArray[np.intp]  # the first row of each
    columns: Ints
    absent: list[int]  # columns of `Socket` that the kernel lacks

    @property
    def backoff_byte(self) -> int:
        """Return the octet at which a message of this shape has its backoff."""
        return 4 * (self.shape.info_at + _BACKOFF)


Known = tuple[Group, ...]


class DumpReader:
    """Reads the dumps of one namespace.  A port is ignored at either end."""

    def __init__(self, peers: Peers, *, ignored_ports: AbstractSet[int] = frozenset()) -> None:
        self._node_of = peers.keys
        self._ignored_ports = np.array(sorted(ignored_ports), np.uint16)
        self._dumped: list[tuple[Shape, bytes]] = []
        self._orders: list[NDArray[np.intp]] = []  # messages of each shape that lead to peers
        self._known: Known = ()

    def read(self, dump: Dump) -> tuple[Known, list[Words]]:
        """Return the sockets that lead to peers, and the messages of each group.  Equal sockets give one object."""
        parts = list(shapes(dump))
        dumped = [(shape, words[:, IDENTITY].tobytes()) for words, shape in parts]
        if dumped != self._dumped:
            self._dumped = dumped
            self._look_up(parts)
        ordered = zip(parts, self._orders, strict=True)
        return self._known, [words[order] for (words, _), order in ordered if len(order)]

    def _look_up(self, parts: list[tuple[Words, Shape]]) -> None:
        self._orders, groups = [], []
        for words, shape in parts:
            peer = self._peer(words)
            order = np.argsort(peer, kind="stable")
            order = order[np.searchsorted(peer, 0, sorter=order) :]
            self._orders.append(order)
            if len(order):
                groups.append((shape, words[order, IDENTITY].tobytes(), peer[order]))
        if [group[:2] for group in groups] != [group[:2] for group in self._known]:
            self._known = tuple(_group(*group) for group in groups)

    def _peer(self, words: Words) -> Ints:
        targets = words[:, _TARGET : _TARGET + 4].tobytes()
        peer = np.array([self._node_of.get(targets[at : at + 16], -1) for at in range(0, len(targets), 16)], np.int64)
        if len(self._ignored_ports):
            ports = np.ascontiguousarray(words[:, PORTS]).view(">u2").reshape(-1, 2)
            peer[np.isin(ports, self._ignored_ports).any(axis=1)] = -1
        return peer


def _group(shape: Shape, identity: bytes, peer: Ints) -> Group:
    peers, starts, connections = np.unique(peer, return_index=True, return_counts=True)
    return Group(shape, identity, len(peer), peers, connections, starts, *_columns(shape))


def samples(known: Known, parts: Sequence[Words], *, times_s: Sequence[float], node: int) -> list[Sample]:
    """Return polls of the same sockets; `parts` has one array per group: polls x rows x words."""
    rows = [_rows(words, group) for words, group in zip(parts, known, strict=True)]
    if len(known) == 1:
        peers, polls = known[0].peers, rows[0]
    else:
        none = np.empty((len(times_s), 0, len(Socket._fields)), np.int64)
        peers, polls = _merged(
            np.concatenate([np.empty(0, np.int64), *(group.peers for group in known)]),
            np.concatenate([none, *rows], axis=1),
        )
    return [Sample(at_s, node, peers, poll) for at_s, poll in zip(times_s, polls, strict=True)]


def shapes(dump: Dump) -> Iterator[tuple[Words, Shape]]:
    """Yield (messages x words, their shape) for each shape of message that has tcp_info."""
    length = struct.unpack_from("=I", dump)[0] if len(dump) >= MESSAGE_BYTES else 0
    if length >= MESSAGE_BYTES and length % 4 == 0 and len(dump) % length == 0:
        words = np.frombuffer(dump, "<u4").reshape(-1, length // 4)
        at, size = _info(dump[:length])
        alike = (words[:, [_LENGTH, _KIND, at - 1]] == words[0, [_LENGTH, _KIND, at - 1]]).all()
        if at and alike and (words[0, _KIND] & 0xFFFF) in _KINDS:
            yield words, Shape(length // 4, at, size)
            return
    yield from _sorted_out(bytes(dump))


def _sorted_out(dump: bytes) -> Iterator[tuple[Words, Shape]]:
    by_shape: dict[Shape, list[bytes]] = {}
    at = 0
    while at + MESSAGE_BYTES <= len(dump):
        length, kind = struct.unpack_from("=IH", dump, at)
        if length < 16 or at + length > len(dump):
            break  # cut off
        if kind in _KINDS and length >= MESSAGE_BYTES:
            message = dump[at : at + (length & ~3)]
            info_at, info_words = _info(message)
            if info_at:
                by_shape.setdefault(Shape(len(message) // 4, info_at, info_words), []).append(message)
        at += (length + 3) & ~3
    for shape, messages in by_shape.items():
        yield np.frombuffer(b"".join(messages), "<u4").reshape(-1, shape.words), shape


def _info(message: Dump) -> tuple[int, int]:
    """Return the word at which tcp_info begins in a message, and its length in words; (0, 0) without one."""
    inner = MESSAGE_BYTES
    while inner + 4 <= len(message):
        size, kind = struct.unpack_from("=HH", message, inner)
        if size < 4 or inner + size > len(message):
            break
        if kind == INET_DIAG_INFO:
            return (inner + 4) // 4, (size - 4) // 4
        inner += (size + 3) & ~3
    return 0, 0


def _columns(shape: Shape) -> tuple[Ints, list[int]]:
    """Return the words of a message in the order of `_rows`, and the columns of `Socket` that an older kernel lacks."""
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
    for name, offset in (_LARGEST | _MIN).items():
        take(name, offset // 4, 1)
    take("backoff", _BACKOFF, 1)
    taken.append(STATE)
    return np.array(taken, np.int64), absent


def _rows(words: Words, of: Group) -> Ints:
    """Return polls x peers x columns of `Socket`, from polls x messages x words."""
    rows = np.empty((len(words), len(of.peers), len(Socket._fields)), np.int64)
    if not len(of.peers):
        return rows
    taken = words.take(of.columns, axis=2)
    wide, added, largest, least = _ENDS
    sums = np.add.reduceat(taken[:, :, :added], of.starts, axis=1, dtype=np.int64)
    backoff, state = taken[:, :, least] & 0xFF, taken[:, :, least + 1]
    # Octets: family, state, timer, tries.  Tries count retransmissions only for the retransmission timer.
    tries = np.where((state >> 16) & 0xFF == _TIMER_RETRANSMIT, state >> 24, 0)
    rows[:, :, 0] = of.connections
    rows[:, :, _WIDE_AT] = sums[:, :, 0:wide:2] + (sums[:, :, 1:wide:2] << 32)
    rows[:, :, _ADDED_AT] = sums[:, :, wide:]
    rows[:, :, _LARGEST_AT] = np.maximum.reduceat(taken[:, :, added:largest], of.starts, axis=1)
    rows[:, :, _MIN_AT] = np.minimum.reduceat(taken[:, :, largest:least], of.starts, axis=1)
    rows[:, :, _TRIES_AT] = np.add.reduceat(tries, of.starts, axis=1, dtype=np.int64)
    rows[:, :, _BACKOFF_AT] = np.maximum.reduceat(backoff, of.starts, axis=1)
    if of.absent:
        rows[:, :, of.absent] = 0
    return rows


def _merged(peers: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Merge rows of several shapes into one per peer."""
    order = np.argsort(peers, kind="stable")
    rows = rows[:, order]
    merged, starts = np.unique(peers[order], return_index=True)
    if not len(starts):
        return merged, rows
    joined = np.add.reduceat(rows, starts, axis=1)
    for columns, reduced in (([*_LARGEST_AT, _BACKOFF_AT], np.maximum), (_MIN_AT, np.minimum)):
        joined[:, :, columns] = reduced.reduceat(rows[:, :, columns], starts, axis=1)
    return merged, joined
