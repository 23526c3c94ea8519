"""Keeps one TCP connection per pair of ranks, and a thread that transfers bytes while the rank computes.

A transfer needs both sides: the receiver posts a buffer and announces it, then the sender sends.  The socket transports
of gloo and NCCL do the same, so the kernel's counters look the same to a monitor: a frozen process leaves announcements
unread, a rank that is merely late does not.  Frames: kind, tag, size; the n-th receive from a peer gets that peer's
n-th send.
"""

import os
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

HEADER: Final = struct.Struct("!BIQ")
POSTED, DATA = 0, 1
PORT: Final = 29400
READ_BYTES: Final = 1 << 18
DIAL_S: Final = 0.05


class BrokenMeshError(ConnectionError):
    """A peer has closed its connection."""


class Transfer:
    """Tracks one send or receive; `at_s` is its completion time."""

    def __init__(self) -> None:
        self._through = threading.Event()
        self.error: Exception | None = None
        self.at_s = 0.0

    def finish(self, error: Exception | None = None) -> None:
        self.at_s, self.error = time.time(), error
        self._through.set()

    def wait(self) -> float:
        """Wait for the completion and return its time."""
        self._through.wait()
        if self.error is not None:
            raise self.error
        return self.at_s


@dataclass
class _Peer:
    """Tracks one connection and its transfers."""

    connection: socket.socket
    header: bytearray = field(default_factory=bytearray)
    left: memoryview | None = None  # the rest of the buffer that is being received
    arriving: int = 0  # the tag of that buffer
    outbox: deque[tuple[memoryview, Transfer | None]] = field(default_factory=deque)
    posted: dict[int, tuple[memoryview, Transfer]] = field(default_factory=dict)
    waiting: dict[int, tuple[memoryview, Transfer]] = field(
        default_factory=dict
    )  # sends that the peer has not announced a buffer for
    announced: set[int] = field(default_factory=set)
    sends: int = 0
    receives: int = 0
    lost: Exception | None = None


class Mesh:
    def __init__(self, connections: Mapping[int, socket.socket]) -> None:
        self._peers = {rank: _Peer(connection) for rank, connection in connections.items()}
        self._lock = threading.Lock()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake, selectors.EVENT_READ)
        for peer in self._peers.values():
            peer.connection.settimeout(0.0)
            self._selector.register(peer.connection, selectors.EVENT_READ, peer)
        threading.Thread(target=self._move, name="mesh", daemon=True).start()

    def send(self, rank: int, data: memoryview) -> Transfer:
        """Send bytes once the peer has a buffer for them."""
        transfer = Transfer()
        with self._lock:
            peer = self._there(rank)
            tag, peer.sends = peer.sends, peer.sends + 1
            if tag in peer.announced:
                peer.announced.remove(tag)
                self._queue_data(peer, tag, data, transfer)
            else:
                peer.waiting[tag] = (data, transfer)
        return transfer

    def receive(self, rank: int, buffer: memoryview) -> Transfer:
        """Receive the peer's next bytes into a buffer of their size."""
        transfer = Transfer()
        with self._lock:
            peer = self._there(rank)
            tag, peer.receives = peer.receives, peer.receives + 1
            peer.posted[tag] = (buffer, transfer)
            self._queue(peer, memoryview(HEADER.pack(POSTED, tag, len(buffer))), None)
        return transfer

    def close(self) -> None:
        """Close the connections, which the peers detect."""
        with self._lock:
            for peer in self._peers.values():
                peer.connection.shutdown(socket.SHUT_RDWR)

    def _there(self, rank: int) -> _Peer:
        peer = self._peers[rank]
        if peer.lost is not None:
            raise peer.lost
        return peer

    def _queue_data(self, peer: _Peer, tag: int, data: memoryview, transfer: Transfer) -> None:
        self._queue(peer, memoryview(HEADER.pack(DATA, tag, len(data))), None)
        self._queue(peer, data, transfer)

    def _queue(self, peer: _Peer, data: memoryview, transfer: Transfer | None) -> None:
        peer.outbox.append((data, transfer))
        os.eventfd_write(self._wake, 1)

    def _move(self) -> None:
        while True:
            ready = self._selector.select()
            with self._lock:
                for key, events in ready:
                    if key.data is None:
                        os.eventfd_read(self._wake)
                    else:
                        self._serve(key.data, events)
                for peer in self._peers.values():
                    if peer.outbox:
                        self._serve(peer, selectors.EVENT_WRITE)

    def _serve(self, peer: _Peer, events: int) -> None:
        try:
            if events & selectors.EVENT_READ and peer.lost is None:
                self._read(peer)
            if events & selectors.EVENT_WRITE and peer.lost is None:
                self._write(peer)
        except OSError as error:
            self._lose(peer, error)

    def _write(self, peer: _Peer) -> None:
        try:
            while peer.outbox:
                data, transfer = peer.outbox[0]
                sent = peer.connection.send(data)
                if sent < len(data):
                    peer.outbox[0] = (data[sent:], transfer)
                    continue
                peer.outbox.popleft()
                if transfer is not None:
                    transfer.finish()
        except BlockingIOError:
            pass
        interests = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.outbox else 0)
        if self._selector.get_key(peer.connection).events != interests:
            self._selector.modify(peer.connection, interests, peer)

    def _read(self, peer: _Peer) -> None:
        try:
            while True:
                if peer.left is None:
                    self._read_header(peer)
                else:
                    self._read_data(peer, peer.left)
        except BlockingIOError:
            pass

    def _read_header(self, peer: _Peer) -> None:
        peer.header += _some(peer.connection.recv(HEADER.size - len(peer.header)))
        if len(peer.header) < HEADER.size:
            return
        kind, tag, size = HEADER.unpack(peer.header)
        peer.header.clear()
        if kind == DATA:
            peer.left, peer.arriving = peer.posted[tag][0], tag
        elif tag in peer.waiting:
            data, transfer = peer.waiting.pop(tag)
            if len(data) != size:
                raise BrokenMeshError(f"a buffer of {size} bytes for {len(data)}")
            self._queue_data(peer, tag, data, transfer)
        else:
            peer.announced.add(tag)

    def _read_data(self, peer: _Peer, left: memoryview) -> None:
        count = peer.connection.recv_into(left[:READ_BYTES])
        if count == 0:
            raise BrokenMeshError("a peer has closed its connection")
        peer.left = left[count:] if count < len(left) else None
        if peer.left is None:
            peer.posted.pop(peer.arriving)[1].finish()

    def _lose(self, peer: _Peer, error: OSError) -> None:
        """Fail only the transfers with this peer, as gloo does: the others may still finish."""
        peer.lost = error if isinstance(error, BrokenMeshError) else BrokenMeshError(str(error))
        self._selector.unregister(peer.connection)
        peer.connection.close()
        for _, transfer in (*peer.posted.values(), *peer.waiting.values(), *peer.outbox):
            if transfer is not None:
                transfer.finish(peer.lost)
        peer.outbox.clear()


def connect(*, rank: int, size: int, address: Callable[[int], str], port: int = PORT) -> Mesh:
    """Connect to all other ranks: dial the lower ones, accept the higher ones."""
    connections: dict[int, socket.socket] = {}
    with socket.create_server((address(rank), port), backlog=size) as listener:
        for lower in range(rank):
            connections[lower] = _dial((address(lower), port))
            connections[lower].sendall(struct.pack("!I", rank))
        while len(connections) < size - 1:
            dialled, _ = listener.accept()
            connections[struct.unpack("!I", dialled.recv(4, socket.MSG_WAITALL))[0]] = dialled
    for connection in connections.values():
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Mesh(connections)


def _dial(where: tuple[str, int]) -> socket.socket:
    while True:
        try:
            return socket.create_connection(where, timeout=DIAL_S * 20)
        except OSError:
            time.sleep(DIAL_S)


def _some(data: bytes) -> bytes:
    if not data:
        raise BrokenMeshError("a peer has closed its connection")
    return data
