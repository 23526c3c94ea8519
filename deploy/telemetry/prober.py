"""One-way probes between the nodes that a job's sockets connect: the one-way time of a message of known size.

docs/explanation/faults/recorder.md describes trains, replies and ports.  The delay is received - sent by the wall
clocks of two nodes: a constant clock offset stays in it, and the drift is small over minutes.  The time of a train's
second half (`tail_s`) is its size over the narrowest rate, by the receiver's clock alone; a shaper's burst is in the
first half.  ECMP hashes ports (RFC 2992), so a node sends from PORTS source ports in rotation.

Peers come from the job's sockets (`factory.ConnectedPeersSource`), before that from the order of node indices.  Peers
take turns in ring order.  Turns are counted from the epoch, so nodes with equally many peers are at the same distance,
and a node receives one train a turn.  There are at most MAX_PER_S turns a second.  Of two turns in one poll the second
train waits behind the first on a slow sender's link; the number of turns is even, so a pair always has the same place.

A slow train is repeated (`Repeats`), because one train does not show whether the path or other traffic was slow.  Polls
are TICKS times as frequent as turns, and a repetition takes a poll without a turn, so it never meets the sender's own
trains.
"""

import errno
import ipaddress
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil, floor, isfinite
from pathlib import Path
from typing import Final, NamedTuple

from deploy.telemetry.netlink import enter_namespace
from deploy.telemetry.peers import Peers
from deploy.telemetry.probe_replies import PendingTrains, is_reply, reply_of
from faults.observations import Observation, Probe, ProbeReturned
from faults.readers import ParseErrors
from fleet.documents import RuleError

PORT: Final = 9405
MAX_BYTES: Final = 64 * 1024  # the trains of two turns fit the buffer that any process may request
PORTS: Final = 8  # source ports: as many paths, unless hashes collide
MAX_PER_S: Final = 8.0  # trains of a node; two peers may need more
MAX_TURNS: Final = 2  # in one poll
TICKS: Final = 2  # polls of a period
MAX_REPEATS: Final = 5  # of a train
SLOWER: Final = 1.1  # than usual: the second half of a slow train
USUAL: Final = 0.25  # quantile of a peer's trains without other traffic on the path
MIN_TAILS: Final = 4  # of a peer; before that all peers are compared
MAX_TAILS: Final = 16  # a path that stays slow becomes usual, and its trains are no longer repeated
MIN_BYTES: Final = 64
DATAGRAM_BYTES: Final = 1400  # with headers below the usual 1,500 bytes of a packet
MAX_DATAGRAMS: Final = 1000  # of a poll: more are unexpected
BUFFER_BYTES: Final = 1 << 20  # the kernel grants at most its own limit
SO_TIMESTAMPNS: Final = 35  # asm-generic/socket.h; the reply's type is the same number
HEAD: Final = struct.Struct("!8sIIHHd")  # the mark, then a _Head
MARK: Final = b"fwprobe1"
TIMESPEC: Final = struct.Struct("=qq")
ANCILLARY_BYTES: Final = socket.CMSG_SPACE(TIMESPEC.size)
MAX_TRAIN: Final = ceil(MAX_BYTES / DATAGRAM_BYTES)
UNREACHABLE: Final = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ECONNREFUSED})
SOURCE: Final = "probe"


class _Head(NamedTuple):
    node: int
    number: int  # of the train
    datagram: int
    datagrams: int  # of the train
    sent_s: float


@dataclass(slots=True)
class _Train:
    head: _Head
    missing: set[int]
    size_bytes: int = 0
    half_s: float | None = None  # when the last datagram of the first half arrived
    received_s: float = 0.0

    def probe(self) -> Probe:
        return Probe(self.size_bytes, self.head.sent_s, self.received_s, self._tail_s())

    def _tail_s(self) -> float | None:
        """Return None for reordered datagrams and for a train of one."""
        return None if self.half_s is None or self.received_s <= self.half_s else self.received_s - self.half_s


class Repeats:
    """The peers whose last train was slow, by the replies."""

    def __init__(self) -> None:
        self._tails_s: dict[int, deque[float]] = {}
        self._left: dict[int, int] = {}  # repetitions of the peer's last train
        self._due: deque[int] = deque()

    def sent(self, peer: int) -> None:
        """Take a train that is no repetition."""
        self._left[peer] = MAX_REPEATS

    def taken(self, peer: int, tail_s: float) -> None:
        """Take a reply."""
        usual_s = self._usual_s(peer)
        self._tails_s.setdefault(peer, deque(maxlen=MAX_TAILS)).append(tail_s)
        if usual_s is not None and tail_s > SLOWER * usual_s and self._left.get(peer, 0) and peer not in self._due:
            self._left[peer] -= 1
            self._due.append(peer)

    def next(self) -> int | None:
        return self._due.popleft() if self._due else None

    def _usual_s(self, peer: int) -> float | None:
        own = self._tails_s.get(peer, ())
        known = own if len(own) >= MIN_TAILS else [tail_s for tails_s in self._tails_s.values() for tail_s in tails_s]
        return sorted(known)[int(USUAL * len(known))] if len(known) >= MIN_TAILS else None


class Prober:
    """Sends to the node's peers and receives their trains.  A `Source`; raises OSError if the port is taken.

    `every_s`: the period of each peer while there are few.
    """

    name = "probes"

    def __init__(
        self,
        *,
        node: int,
        peers: Peers,
        size_bytes: int,
        every_s: float = 1.0,
        period_s: float = 0.25,
        namespace: Path | None = None,
        port: int = PORT,
        tally: ParseErrors | None = None,
        connected_peers: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        self.period_s = period_s / TICKS
        self._node, self._size_bytes, self._port = node, size_bytes, port
        self._nodes, self._every_s, self._connected_peers = peers.nodes, every_s, connected_peers
        self._tally = tally or ParseErrors()
        self._address_of = _addresses(peers)
        self._neighbours = tuple(neighbours(node, peers))
        self._node_of = {str(ipaddress.ip_address(address)): of for address, of in peers.node_of.items()}
        self._last_connected: Iterable[int] = ()
        self._others = self._neighbours
        self._turn_s = 0.0  # of the last poll
        self._turn = 0
        self._sent = 0
        self._trains: dict[int, _Train] = {}
        self._pending = PendingTrains(size_bytes=size_bytes)
        self._repeats = Repeats()
        self._socket = _opened(self._address_of[node], port, namespace)
        self._from = _senders(self._address_of[node], port, namespace)

    def poll(self, now_s: float) -> list[Observation]:
        """Return trains completed since the last poll, and replies to own trains; send the next trains that are due."""
        taken = [one for received in self._received() if (one := self._taken(*received)) is not None]
        for peer, values in taken:
            if isinstance(values, ProbeReturned) and values.tail_s is not None:
                self._repeats.taken(peer, values.tail_s)
        self._send_due(now_s)
        return [Observation(now_s, self._node, values, peer=peer) for peer, values in taken]

    def close(self) -> None:
        for one in (self._socket, *self._from):
            one.close()

    def _send_due(self, now_s: float) -> None:
        others = self._known()
        turns = self._turns(now_s, turns_of(len(others)))
        for turn in turns:
            if (at := turn % turns_of(len(others))) < len(others):
                self._repeats.sent(others[at])
                self._send(others[at])
        if not turns and (again := self._repeats.next()) is not None and again in others:
            self._send(again)

    def _known(self) -> tuple[int, ...]:
        """Return the peers, from the next in the ring on."""
        connected_peers = self._connected_peers()
        if connected_peers != self._last_connected:
            self._last_connected = frozenset(connected_peers)
            known = {node for node in self._last_connected if node in self._address_of and node != self._node}
            self._others = tuple(sorted(known, key=lambda node: (node - self._node) % self._nodes)) or self._neighbours
        return self._others

    def _turns(self, now_s: float, turns: int) -> range:
        """Return the turns since the last poll; at least the newest if their number changed."""
        turn_s = max(self._every_s / turns, min(1.0 / MAX_PER_S, self._every_s / 2))
        turn, before = floor(now_s / turn_s), self._turn if turn_s == self._turn_s else -1
        self._turn_s, self._turn = turn_s, turn
        if before == turn:
            return range(0)
        missed = min(turn - before, MAX_TURNS) if 0 <= before < turn else 1
        return range(turn + 1 - missed, turn + 1)

    def _send(self, other: int) -> None:
        where = self._address_of[other], self._port
        self._sent += 1
        sent_s = time.time()
        # By rounds, not by trains: with as many peers as ports each would always use the same port.
        way = self._from[(self._sent // turns_of(len(self._others))) % PORTS]
        try:
            for datagram in train(self._node, self._sent, sent_s=sent_s, size_bytes=self._size_bytes):
                way.sendto(datagram, where)
        except BlockingIOError:
            self._tally.add(SOURCE, "send buffer full")
        except OSError as error:
            if error.errno not in UNREACHABLE:
                raise
            self._tally.add(SOURCE, "peer unreachable")
        else:
            self._pending.sent(other, self._sent, sent_s)

    def _received(self) -> Iterator[tuple[bytes, str, float]]:
        for _ in range(MAX_DATAGRAMS):
            try:
                message, ancillary, _flags, where = self._socket.recvmsg(DATAGRAM_BYTES + 1, ANCILLARY_BYTES)
            except BlockingIOError:
                return
            except ConnectionRefusedError:  # the peer does not listen yet
                continue
            yield message, where[0], _stamp_s(ancillary)

    def _taken(self, message: bytes, address: str, stamp_s: float) -> tuple[int, Probe | ProbeReturned] | None:
        """Return the peer and its probe, once the train is whole; or its reply to an own train."""
        of = self._node_of.get(address)
        if is_reply(message):
            reply = self._pending.taken(message, of)
            if reply is None:
                self._tally.add(SOURCE, "unexpected packet")
            return reply
        head = _head(message)
        if head is None or of != head.node:
            self._tally.add(SOURCE, "unexpected packet")
            return None
        incoming = self._trains.get(head.node)
        if incoming is None or incoming.head[:2] != head[:2]:
            if incoming is not None and incoming.missing:
                self._tally.add(SOURCE, "train with a gap")
            incoming = self._trains[head.node] = _Train(head, set(range(head.datagrams)))
        if head.datagram in incoming.missing:
            incoming.missing.remove(head.datagram)
            incoming.size_bytes += len(message)
            incoming.received_s = max(incoming.received_s, stamp_s)
            if head.datagram == (head.datagrams - 1) // 2:
                incoming.half_s = stamp_s
            if not incoming.missing:
                return head.node, self._replied(head, incoming.probe())
        return None

    def _replied(self, head: _Head, probe: Probe) -> Probe:
        """Reply to the sender: one datagram for a whole train.  It never waits."""
        reply = reply_of(self._node, head.number, probe)
        where = self._address_of[head.node]
        if reply is not None and head.node != self._node:
            try:
                self._socket.sendto(reply, (where, self._port))
            except OSError:  # the train is reported here in any case
                self._tally.add(SOURCE, "reply not sent")
        return probe


def train(node: int, number: int, *, sent_s: float, size_bytes: int) -> Iterator[bytes]:
    count = ceil(size_bytes / DATAGRAM_BYTES)
    for datagram in range(count):
        size = size_bytes // count + (datagram < size_bytes % count)
        yield HEAD.pack(MARK, node, number, datagram, count, sent_s).ljust(size, b"\0")


def turns_of(others: int) -> int:
    """Return an even number, at least two; one may be idle."""
    return max(2, others + others % 2)


def neighbours(node: int, peers: Peers) -> list[int]:
    """Return the next and the previous node in the ring; of two nodes the other, of one none."""
    ring = sorted(_addresses(peers))
    if node not in ring:
        raise RuleError([(("node",), f"expected one of the peers' indices, got {node}")])
    at = ring.index(node)
    others = dict.fromkeys(ring[(at + step) % len(ring)] for step in (1, -1))
    return [other for other in others if other != node]


def _addresses(peers: Peers) -> dict[int, str]:
    return {node: address for address, node in reversed(list(peers.node_of.items()))}


def _head(message: bytes) -> _Head | None:
    if not HEAD.size <= len(message) <= DATAGRAM_BYTES:
        return None
    mark, *fields = HEAD.unpack_from(message)
    head = _Head(*fields)
    sane = mark == MARK and 0 <= head.datagram < head.datagrams <= MAX_TRAIN and isfinite(head.sent_s)
    return head if sane else None


def _stamp_s(ancillary: Sequence[tuple[int, int, bytes]]) -> float:
    """Return the kernel's stamp, or the current time."""
    for level, kind, data in ancillary:
        if (level, kind, len(data)) == (socket.SOL_SOCKET, SO_TIMESTAMPNS, TIMESPEC.size):
            seconds, nanoseconds = TIMESPEC.unpack(data)
            return float(seconds + 1e-9 * nanoseconds)
    return time.time()


def _senders(address: str, port: int, namespace: Path | None) -> tuple[socket.socket, ...]:
    """Open sockets on the ports after `port` if free, otherwise on any port."""
    made = []
    for way in range(1, PORTS + 1):
        try:
            made.append(_opened(address, port + way if port else 0, namespace))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            made.append(_opened(address, 0, namespace))
    return tuple(made)


def _opened(address: str, port: int, namespace: Path | None) -> socket.socket:
    """A socket belongs to the namespace that created it: a thread enters the namespace, and ends there."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="enter-netns") as threaded:
        return threaded.submit(_open, address, port, namespace).result()


def _open(address: str, port: int, namespace: Path | None) -> socket.socket:
    if namespace is not None:
        enter_namespace(namespace)
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made
