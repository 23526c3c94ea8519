"""One-way probes between the nodes that a job's sockets connect: how long a message of known size takes, one way only.

Where a job passes nothing from rank to rank, nothing else tells a slow sender from a slow receiver: TCP's own timing is
that of the round trip.  A probe is a train of UDP datagrams, sent back to back; the kernel stamps each as it arrives
(SO_TIMESTAMPNS, socket(7)), so neither a busy recorder nor the way back is in the figure.  The delay is
received - sent by the wall clocks of two nodes: a constant difference of the clocks stays in it, a drift is small
over minutes.  A train larger than what a shaper lets through at once shows the rate, a smaller one only the queue.
How long its second half takes (`tail_s`) is its size over the rate of the narrowest wire by the receiver's clock alone:
what a shaper lets through at once is in the first half.

Flows are spread over cables by a hash of their ports (RFC 2992).  A node sends from PORTS source ports in turn, so that
the trains of a pair take several ways and the quickest of them is not the one that others fill.

Whom the job talks with is learnt (`talking`); until it talks the neighbours in the order of node indices are probed.
All are sent to in turns, from the next in the ring on.  Turns are counted from the epoch, so nodes that have as many
peers each are all at the same distance at once, and a node takes in one train a turn.  There are MAX_PER_S turns a
second at most, so many peers wait for longer.  Of two turns in one look the second train waits behind the first where
the sender's own wire is slow: there is an even number of turns, so a pair always has the same place.  A train that lost
a datagram says nothing and is counted.  Whatever else comes to the port is counted and left.

Who has a whole train sends word of it to whom it came from (`probe_words`), who tells the same reading.
"""

import errno
import ipaddress
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil, floor, isfinite
from pathlib import Path
from typing import Final, NamedTuple

from deploy.telemetry.netlink import enter_namespace
from deploy.telemetry.peers import Peers
from deploy.telemetry.probe_replies import Awaited, is_reply, reply_of
from faults.observations import Observation, Probe, ProbeReturned
from faults.readers import ParseErrors
from fleet.documents import RuleError

PORT: Final = 9405
MAX_BYTES: Final = 64 * 1024  # the trains of two turns fit the buffer that any process may ask for
PORTS: Final = 8  # source ports: as many ways through the fabric, where hashes do not fall together
MAX_PER_S: Final = 8.0  # trains of a node; as many as two peers need where that is more
MAX_TURNS: Final = 2  # in one look
MIN_BYTES: Final = 64
DATAGRAM_BYTES: Final = 1400  # with headers below the usual 1,500 bytes of a packet
MAX_DATAGRAMS: Final = 1000  # a look: more is none of ours
BUFFER_BYTES: Final = 1 << 20  # the kernel gives as much of it as it may
SO_TIMESTAMPNS: Final = 35  # asm-generic/socket.h; the answer's type is the same number
HEAD: Final = struct.Struct("!8sIIHHd")  # the mark, then a _Head
MARK: Final = b"fwprobe1"
TIMESPEC: Final = struct.Struct("=qq")
ANCILLARY_BYTES: Final = socket.CMSG_SPACE(TIMESPEC.size)
MAX_TRAIN: Final = ceil(MAX_BYTES / DATAGRAM_BYTES)
UNREACHABLE: Final = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ECONNREFUSED})
WHAT: Final = "probe"


class _Head(NamedTuple):
    node: int
    number: int  # of the train
    datagram: int
    datagrams: int  # of the train
    sent_s: float


@dataclass(slots=True)
class _Train:
    """What has come of one."""

    head: _Head
    missing: set[int]
    size_bytes: int = 0
    half_s: float | None = None  # when the last datagram of the first half came
    received_s: float = 0.0

    def probe(self) -> Probe:
        """Of all of it."""
        return Probe(self.size_bytes, self.head.sent_s, self.received_s, self._tail_s())

    def _tail_s(self) -> float | None:
        """None where datagrams overtook each other, and of a train of one."""
        return None if self.half_s is None or self.received_s <= self.half_s else self.received_s - self.half_s


class Prober:
    """Sends to those whom a node talks with, and hears them.  A `Source`; raises OSError where it may not listen.

    `every_s`: how often each peer is probed, while they are few.
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
        talking: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        self.period_s = period_s
        self._node, self._size_bytes, self._port = node, size_bytes, port
        self._nodes, self._every_s, self._talking = peers.nodes, every_s, talking
        self._tally = tally or ParseErrors()
        self._address_of = _addresses(peers)
        self._neighbours = tuple(neighbours(node, peers))
        self._node_of = {str(ipaddress.ip_address(address)): of for address, of in peers.node_of.items()}
        self._talked: Iterable[int] = ()
        self._others = self._neighbours
        self._turn_s = 0.0  # of the last look
        self._turn = 0
        self._sent = 0
        self._trains: dict[int, _Train] = {}
        self._awaited = Awaited(size_bytes=size_bytes)
        self._socket = _opened(self._address_of[node], port, namespace)
        self._from = _senders(self._address_of[node], port, namespace)

    def look(self, now_s: float) -> list[Observation]:
        """Whole trains that have come since the last look, and words of ours; sends the next train when it is due."""
        taken = [self._taken(*heard) for heard in self._heard()]
        others = self._known()
        for turn in self._turns(now_s, turns_of(len(others))):
            if (at := turn % turns_of(len(others))) < len(others):
                self._send(others[at])
        return [Observation(now_s, self._node, values, peer=peer) for peer, values in filter(None, taken)]

    def close(self) -> None:
        """Give the sockets back."""
        for one in (self._socket, *self._from):
            one.close()

    def _known(self) -> tuple[int, ...]:
        """Whom to probe, from the next in the ring on."""
        talking = self._talking()
        if talking != self._talked:
            self._talked = frozenset(talking)
            known = {node for node in self._talked if node in self._address_of and node != self._node}
            self._others = tuple(sorted(known, key=lambda node: (node - self._node) % self._nodes)) or self._neighbours
        return self._others

    def _turns(self, now_s: float, turns: int) -> range:
        """Those that have begun since the last look, the newest at least of them where they are another length."""
        turn_s = max(self._every_s / turns, min(1.0 / MAX_PER_S, self._every_s / 2))
        turn, before = floor(now_s / turn_s), self._turn if turn_s == self._turn_s else -1
        self._turn_s, self._turn = turn_s, turn
        if before == turn:
            return range(0)
        missed = min(turn - before, MAX_TURNS) if 0 <= before < turn else 1
        return range(turn + 1 - missed, turn + 1)

    def _send(self, other: int) -> None:
        """A train to one peer."""
        where = self._address_of[other], self._port
        self._sent += 1
        sent_s = time.time()
        # By rounds, not by trains: with as many peers as ports each would else always be probed from the same one.
        way = self._from[(self._sent // turns_of(len(self._others))) % PORTS]
        try:
            for datagram in train(self._node, self._sent, sent_s=sent_s, size_bytes=self._size_bytes):
                way.sendto(datagram, where)
        except BlockingIOError:
            self._tally.add(WHAT, "no room to send")
        except OSError as error:
            if error.errno not in UNREACHABLE:
                raise
            self._tally.add(WHAT, "no way to the neighbour")
        else:
            self._awaited.sent(other, self._sent, sent_s)

    def _heard(self) -> Iterator[tuple[bytes, str, float]]:
        """What waits: a datagram, whose it is, when it came."""
        for _ in range(MAX_DATAGRAMS):
            try:
                message, ancillary, _flags, where = self._socket.recvmsg(DATAGRAM_BYTES + 1, ANCILLARY_BYTES)
            except BlockingIOError:
                return
            except ConnectionRefusedError:  # a neighbour does not listen yet
                continue
            yield message, where[0], _stamp_s(ancillary)

    def _taken(self, message: bytes, address: str, stamp_s: float) -> tuple[int, Probe | ProbeReturned] | None:
        """The neighbour and its probe, once all of a train is there; or its word of ours."""
        of = self._node_of.get(address)
        if is_reply(message):
            word = self._awaited.taken(message, of)
            if word is None:
                self._tally.add(WHAT, "none of ours")
            return word
        head = _head(message)
        if head is None or of != head.node:
            self._tally.add(WHAT, "none of ours")
            return None
        came = self._trains.get(head.node)
        if came is None or came.head[:2] != head[:2]:
            if came is not None and came.missing:
                self._tally.add(WHAT, "train with a gap")
            came = self._trains[head.node] = _Train(head, set(range(head.datagrams)))
        if head.datagram in came.missing:
            came.missing.remove(head.datagram)
            came.size_bytes += len(message)
            came.received_s = max(came.received_s, stamp_s)
            if head.datagram == (head.datagrams - 1) // 2:
                came.half_s = stamp_s
            if not came.missing:
                return head.node, self._answered(head, came.probe())
        return None

    def _answered(self, head: _Head, probe: Probe) -> Probe:
        """The sender is told: one datagram for a whole train, and none that waits."""
        word = reply_of(self._node, head.number, probe)
        where = self._address_of[head.node]
        if word is not None and head.node != self._node:
            try:
                self._socket.sendto(word, (where, self._port))
            except OSError:  # whatever it is, the train is told of here
                self._tally.add(WHAT, "word not sent")
        return probe


def train(node: int, number: int, *, sent_s: float, size_bytes: int) -> Iterator[bytes]:
    """The datagrams of one probe, `size_bytes` together."""
    count = ceil(size_bytes / DATAGRAM_BYTES)
    for datagram in range(count):
        size = size_bytes // count + (datagram < size_bytes % count)
        yield HEAD.pack(MARK, node, number, datagram, count, sent_s).ljust(size, b"\0")


def turns_of(others: int) -> int:
    """An even number, at least two: one may be idle."""
    return max(2, others + others % 2)


def neighbours(node: int, peers: Peers) -> list[int]:
    """The nodes after and before in the ring; of two nodes the other, of one none."""
    ring = sorted(_addresses(peers))
    if node not in ring:
        raise RuleError([(("node",), f"expected one of the peers' indices, got {node}")])
    at = ring.index(node)
    others = dict.fromkeys(ring[(at + step) % len(ring)] for step in (1, -1))
    return [other for other in others if other != node]


def _addresses(peers: Peers) -> dict[int, str]:
    """The first of each node."""
    return {node: address for address, node in reversed(list(peers.node_of.items()))}


def _head(message: bytes) -> _Head | None:
    if not HEAD.size <= len(message) <= DATAGRAM_BYTES:
        return None
    mark, *fields = HEAD.unpack_from(message)
    head = _Head(*fields)
    sane = mark == MARK and 0 <= head.datagram < head.datagrams <= MAX_TRAIN and isfinite(head.sent_s)
    return head if sane else None


def _stamp_s(ancillary: Sequence[tuple[int, int, bytes]]) -> float:
    """The kernel's stamp; this moment where it gave none."""
    for level, kind, data in ancillary:
        if (level, kind, len(data)) == (socket.SOL_SOCKET, SO_TIMESTAMPNS, TIMESPEC.size):
            seconds, nanoseconds = TIMESPEC.unpack(data)
            return float(seconds + 1e-9 * nanoseconds)
    return time.time()


def _senders(address: str, port: int, namespace: Path | None) -> tuple[socket.socket, ...]:
    """Bound to the ports after `port` where those are free, else to any."""
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
    """A socket belongs to the namespace in which it was made: a thread enters it, and ends there."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="enter-netns") as aside:
        return aside.submit(_open, address, port, namespace).result()


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
