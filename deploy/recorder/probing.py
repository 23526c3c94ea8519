"""One-way probes round the ring of nodes: how long a message of known size takes to each neighbour, one way only.

Where a job passes nothing from rank to rank, nothing else tells a slow sender from a slow receiver: TCP's own timing is
that of the round trip.  A probe is a train of UDP datagrams, sent back to back; the kernel stamps each as it arrives
(SO_TIMESTAMPNS, socket(7)), so neither a busy recorder nor the way back is in the figure.  The delay is
received - sent by the wall clocks of two nodes: a constant difference of the clocks stays in it, a drift is small
over minutes.  A train larger than what a shaper lets through at once shows the rate, a smaller one only the queue.

Both neighbours in the order of node indices are sent to, in turns, so that a node takes in one train at a time.  A
train that lost a datagram says nothing and is counted.  Whatever else comes to the port is counted and left.
"""

import errno
import ipaddress
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil, floor, isfinite
from pathlib import Path
from typing import Final, NamedTuple

from deploy.recorder.netlink import enter_namespace
from deploy.recorder.peers import Peers
from faults.observations import Observation, Probe
from faults.readers import Tally
from fleet.documents import RuleError

PORT: Final = 9405
MOST_BYTES: Final = 64 * 1024  # both neighbours' trains fit the buffer that any process may ask for
LEAST_BYTES: Final = 64
DATAGRAM_BYTES: Final = 1400  # with headers below the usual 1,500 bytes of a packet
MOST_DATAGRAMS: Final = 1000  # a look: more is none of ours
BUFFER_BYTES: Final = 1 << 20  # the kernel gives as much of it as it may
SO_TIMESTAMPNS: Final = 35  # asm-generic/socket.h; the answer's type is the same number
HEAD: Final = struct.Struct("!8sIIHHd")  # the mark, then a _Head
MARK: Final = b"fwprobe1"
TIMESPEC: Final = struct.Struct("=qq")
ANCILLARY_BYTES: Final = socket.CMSG_SPACE(TIMESPEC.size)
MOST_TRAIN: Final = ceil(MOST_BYTES / DATAGRAM_BYTES)
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
    received_s: float = 0.0


class Prober:
    """Sends to both neighbours of a node, and hears them.  A `Source`; raises OSError where it may not listen."""

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
        tally: Tally | None = None,
    ) -> None:
        self.period_s = period_s
        self._node, self._size_bytes, self._port = node, size_bytes, port
        self._tally = tally or Tally()
        self._neighbours = neighbours(node, peers)
        self._node_of = {str(ipaddress.ip_address(address)): of for address, of in peers.node_of.items()}
        self._turn_s = every_s / max(1, len(self._neighbours))
        self._turn: int | None = None
        self._sent = 0
        self._trains: dict[int, _Train] = {}
        self._socket = _opened(_addresses(peers)[node], port, namespace)

    def look(self, now_s: float) -> list[Observation]:
        """Whole trains that have come since the last look; sends the next one when it is due."""
        taken = [self._taken(*heard) for heard in self._heard()]
        turn = floor(now_s / self._turn_s)
        if turn != self._turn and self._neighbours:
            self._turn = turn
            self._send()
        return [Observation(now_s, self._node, probe, peer=peer) for peer, probe in filter(None, taken)]

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def _send(self) -> None:
        """A train to the neighbour whose turn it is."""
        where = self._neighbours[self._sent % len(self._neighbours)][1], self._port
        self._sent += 1
        sent_s = time.time()
        try:
            for datagram in train(self._node, self._sent, sent_s=sent_s, size_bytes=self._size_bytes):
                self._socket.sendto(datagram, where)
        except BlockingIOError:
            self._tally.add(WHAT, "no room to send")
        except OSError as error:
            if error.errno not in UNREACHABLE:
                raise
            self._tally.add(WHAT, "no way to the neighbour")

    def _heard(self) -> Iterator[tuple[bytes, str, float]]:
        """What waits: a datagram, whose it is, when it came."""
        for _ in range(MOST_DATAGRAMS):
            try:
                message, ancillary, _flags, where = self._socket.recvmsg(DATAGRAM_BYTES + 1, ANCILLARY_BYTES)
            except BlockingIOError:
                return
            except ConnectionRefusedError:  # a neighbour does not listen yet
                continue
            yield message, where[0], _stamp_s(ancillary)

    def _taken(self, message: bytes, address: str, stamp_s: float) -> tuple[int, Probe] | None:
        """The neighbour and its probe, once all of a train is there."""
        head = _head(message)
        if head is None or self._node_of.get(address) != head.node:
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
            if not came.missing:
                return head.node, Probe(came.size_bytes, came.head.sent_s, came.received_s)
        return None


def train(node: int, number: int, *, sent_s: float, size_bytes: int) -> Iterator[bytes]:
    """The datagrams of one probe, `size_bytes` together."""
    count = ceil(size_bytes / DATAGRAM_BYTES)
    for datagram in range(count):
        size = size_bytes // count + (datagram < size_bytes % count)
        yield HEAD.pack(MARK, node, number, datagram, count, sent_s).ljust(size, b"\0")


def neighbours(node: int, peers: Peers) -> list[tuple[int, str]]:
    """The nodes after and before in the ring, each by one of its addresses; of two nodes the other, of one none."""
    addresses = _addresses(peers)
    if node not in addresses:
        raise RuleError([(("node",), f"expected one of the peers' indices, got {node}")])
    ring = sorted(addresses)
    at = ring.index(node)
    others = dict.fromkeys(ring[(at + step) % len(ring)] for step in (1, -1))
    return [(other, addresses[other]) for other in others if other != node]


def _addresses(peers: Peers) -> dict[int, str]:
    """The first of each node."""
    return {node: address for address, node in reversed(list(peers.node_of.items()))}


def _head(message: bytes) -> _Head | None:
    if not HEAD.size <= len(message) <= DATAGRAM_BYTES:
        return None
    mark, *fields = HEAD.unpack_from(message)
    head = _Head(*fields)
    sane = mark == MARK and 0 <= head.datagram < head.datagrams <= MOST_TRAIN and isfinite(head.sent_s)
    return head if sane else None


def _stamp_s(ancillary: Sequence[tuple[int, int, bytes]]) -> float:
    """The kernel's stamp; this moment where it gave none."""
    for level, kind, data in ancillary:
        if (level, kind, len(data)) == (socket.SOL_SOCKET, SO_TIMESTAMPNS, TIMESPEC.size):
            seconds, nanoseconds = TIMESPEC.unpack(data)
            return float(seconds + 1e-9 * nanoseconds)
    return time.time()


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
