"""Lists the established TCP sockets of one network namespace (sock_diag(7), INET_DIAG).

A netlink socket belongs to the namespace that created it.  A thread enters another namespace, creates the socket and
ends; the socket stays.  Entering needs CAP_SYS_ADMIN.  A recorder inside the namespace needs no privilege.

A dump walks the kernel's whole hash table of connections: 0.6 ms of a core for the usual 262,144 buckets, nearly empty,
and about 1 us per returned socket.  So one dump covers both families, which only the first form of the request can do
(TCPDIAG_GETSOCK, which every kernel supports), and the kernel filters by peer (`bytecode`).
"""

import ctypes
import errno
import os
import socket
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deploy.telemetry.peers import Address

Words = NDArray[np.uint32]
LINE_BYTES: Final = 64  # rows begin at cache lines
_receive: Final = ctypes.CDLL(None, use_errno=True).recvmmsg
_receive.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
NETLINK_SOCK_DIAG: Final = 4
SOCK_DIAG_BY_FAMILY: Final = 20
TCPDIAG_GETSOCK: Final = 18
NLM_F_REQUEST: Final = 0x001
NLM_F_REQUEST_DUMP: Final = NLM_F_REQUEST | 0x300
NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3
INET_DIAG_INFO: Final = 2  # the attribute that holds tcp_info
INFO_WANTED: Final = 1 << (INET_DIAG_INFO - 1)
INET_DIAG_REQ_BYTECODE: Final = 1
_JUMP, _TARGET_IS = 1, 8  # INET_DIAG_BC_JMP, INET_DIAG_BC_D_COND
MAX_CONDITIONS: Final = 64  # the kernel tries them in order for every socket
TCP_ESTABLISHED: Final = 1
ESTABLISHED: Final = 1 << TCP_ESTABLISHED  # of idiag_states
CLONE_NEWNET: Final = 0x40000000
HEADER: Final = struct.Struct("=IHHII")
BUFFER_BYTES: Final = 1 << 18  # at first
DATAGRAM_BYTES: Final = 1 << 15  # the kernel fills no more at a time
REPLY_S: Final = 2.0  # the kernel replies at once; this bounds the wait
_REFUSED: Final = frozenset({errno.EINVAL, errno.ENOENT, errno.EOPNOTSUPP, errno.EPERM, errno.EPROTONOSUPPORT})
NAMESPACE_FOLDER: Final = Path("/run/netns")


class _Vector(ctypes.Structure):
    """Struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Head(ctypes.Structure):
    """Struct msghdr."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_size", ctypes.c_uint),
        ("vectors", ctypes.c_void_p),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_size", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    """Struct mmsghdr."""

    _fields_ = (("head", _Head), ("size", ctypes.c_uint))


class Frames:
    """Buffers for the kernel's replies at several polls: polls x sockets x `width` octets in one block of memory.

    A netlink reply is one datagram.  recvmmsg(2) receives many of them in one call, each at its own place.  The places
    form a matrix, so that all polls are read together later without a copy.
    """

    def __init__(self, *, polls: int, sockets: int, width: int) -> None:
        self.polls, self.sockets = polls, sockets
        self.width = -(-width // LINE_BYTES) * LINE_BYTES
        self.octets = bytearray(polls * sockets * self.width)
        self.words: Words = np.frombuffer(self.octets, "<u4").reshape(polls, sockets, self.width // 4)
        self._vectors, self._messages = self._places()
        self._first = ctypes.addressof(self._messages)

    def receive(self, netlink: socket.socket, *, poll: int, first: int, count: int) -> bool:
        """Return whether as many replies were waiting.  They go to the rows from `first` on."""
        at = self._first + (poll * self.sockets + first) * ctypes.sizeof(_Message)
        return bool(_receive(netlink.fileno(), at, count, socket.MSG_DONTWAIT, None) == count)

    def put(self, parts: Sequence[Words], *, poll: int) -> None:
        first = 0
        for words in parts:
            self.words[poll, first : first + len(words), : words.shape[1]] = words
            first += len(words)

    def column(self, octet: int, *, poll: int, rows: slice) -> bytearray:
        """Return one octet of each message of a poll: faster than numpy for few messages."""
        begin = poll * self.sockets * self.width + octet
        return self.octets[begin + rows.start * self.width : begin + (rows.stop - 1) * self.width + 1 : self.width]

    def _places(self) -> tuple[Any, Any]:
        """Return an iovec and a header for each place.  Their targets must live as long as they do."""
        count = self.polls * self.sockets
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.octets)) if count else 0
        vectors = (_Vector * count)()
        messages = (_Message * count)()
        for at, (vector, message) in enumerate(zip(vectors, messages, strict=True)):
            vector.base, vector.size = base + at * self.width, self.width
            message.head.vectors, message.head.vector_count = ctypes.addressof(vector), 1
        return vectors, messages


class _Request(NamedTuple):
    kind: int
    body: bytes

    def numbered(self, sequence: int) -> bytes:
        size = HEADER.size + len(self.body)
        return HEADER.pack(size, self.kind, NLM_F_REQUEST_DUMP, sequence, 0) + self.body


class Query(NamedTuple):
    """Requests for one socket each; their sequence numbers are 0, which no dump has."""

    messages: bytes
    sockets: int


class DiagSocket:
    """One netlink socket.  `targets`: the peers' addresses for the kernel's filter, if they are few."""

    def __init__(self, namespace: Path | None = None, *, targets: Sequence[Address] = ()) -> None:
        self._socket = _open() if namespace is None else _open_inside(namespace)
        self._socket.settimeout(REPLY_S)
        self._buffer = bytearray(BUFFER_BYTES)
        self._sequence = 0
        chosen = bytecode(targets) if 0 < len(targets) <= MAX_CONDITIONS else b""
        self._requests: tuple[_Request, ...] = (_of_both_families(chosen),)
        self._fallback_requests = tuple(_of_family(family, b"") for family in (socket.AF_INET, socket.AF_INET6))

    def dump(self) -> memoryview:
        """Return all messages of one dump without end marks, valid until the next dump.  Raise OSError, for example
        when the kernel lacks the module.
        """
        try:
            return self._dump()
        except OSError as error:
            if error.errno not in _REFUSED or self._requests is self._fallback_requests:
                raise
            self._requests = self._fallback_requests
            return self._dump()

    def query(self, queries: Sequence[Query], frames: Frames, *, poll: int) -> bool:
        """Return whether each request got its reply; a missing socket is an error reply.  A dump skips old replies."""
        first = 0
        for query in queries:
            try:
                self._socket.send(query.messages)
            except OSError:
                return False
            if not frames.receive(self._socket, poll=poll, first=first, count=query.sockets):
                return False
            first += query.sockets
        return True

    def close(self) -> None:
        self._socket.close()

    def _dump(self) -> memoryview:
        at = 0
        for request in self._requests:
            self._sequence += 1
            self._socket.send(request.numbered(self._sequence))
            over = False
            while not over:
                at, over = self._take(at)
        return memoryview(self._buffer)[:at]

    def _take(self, at: int) -> tuple[int, bool]:
        """Receive one datagram of the dump: where the next goes, and whether this was the last."""
        if len(self._buffer) - at < DATAGRAM_BYTES:
            self._buffer = self._buffer + bytes(len(self._buffer))  # a new buffer: the old one may be in use
        size = self._socket.recv_into(memoryview(self._buffer)[at:])
        if size < HEADER.size:
            raise OSError("the kernel ended a dump of sockets without an end mark")
        _length, kind, _flags, sequence, _port = HEADER.unpack_from(self._buffer, at)
        if sequence != self._sequence:
            return at, False  # the rest of an abandoned reply
        if kind == NLMSG_ERROR:
            number = -struct.unpack_from("=i", self._buffer, at + HEADER.size)[0]
            raise OSError(number, os.strerror(number))
        if kind == NLMSG_DONE:
            return at, True
        end = _messages_end(self._buffer, at, size)
        return end, end < at + size


def bytecode(targets: Sequence[Address]) -> bytes:
    """Return the filter attribute for connections to these addresses.

    For each address: on a match jump to the end, otherwise to the next.  A jump one word past the end rejects.  An IPv4
    address also matches in its IPv6-mapped form.
    """
    conditions = [_condition(target) for target in targets]
    left = sum(4 + len(condition) + 4 for condition in conditions)
    code = b""
    for condition in conditions:
        size = 4 + len(condition)
        left -= size
        otherwise = size + 4 if left > 4 else size + 8
        code += struct.pack("=BBH", _TARGET_IS, size, otherwise) + condition
        code += struct.pack("=BBH", _JUMP, 4, left)
        left -= 4
    return struct.pack("=HH", 4 + len(code), INET_DIAG_REQ_BYTECODE) + code


def enter_namespace(namespace: Path) -> None:
    """Move the calling thread into a network namespace.  Python has os.setns from 3.12 on."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(handle, CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(namespace))
    finally:
        os.close(handle)


def namespace_path(*, name: str | None = None, pid: int | None = None) -> Path | None:
    """Return an `ip netns` namespace by name, a process's by id; None: the namespace of this process."""
    if name is not None:
        return Path(name) if "/" in name else NAMESPACE_FOLDER / name
    return Path(f"/proc/{pid}/ns/net") if pid is not None else None


def _of_both_families(chosen: bytes) -> _Request:
    # inet_diag_req: family, lengths of two addresses, idiag_ext, an inet_diag_sockid of zeros (any), states, dbs
    return _Request(TCPDIAG_GETSOCK, struct.pack("=BBBB48xII", 0, 0, 0, INFO_WANTED, ESTABLISHED, 0) + chosen)


def _of_family(family: int, chosen: bytes) -> _Request:
    # inet_diag_req_v2: sdiag_family, sdiag_protocol, idiag_ext, pad, idiag_states, an inet_diag_sockid of zeros
    head = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, INFO_WANTED, ESTABLISHED)
    return _Request(SOCK_DIAG_BY_FAMILY, head + chosen)


def _messages_end(buffer: bytearray, at: int, size: int) -> int:
    """Return where the end mark begins: it comes alone, or as the last message of a datagram."""
    mark = at + size - HEADER.size - 4  # its body is one int
    if mark >= at:
        length, kind = struct.unpack_from("=IH", buffer, mark)
        if kind == NLMSG_DONE and length == HEADER.size + 4:
            return mark
    return at + size


def _condition(target: Address) -> bytes:
    """Return an inet_diag_hostcond: family, significant bits of the address, any port, the address."""
    family = socket.AF_INET if target.version == 4 else socket.AF_INET6
    return struct.pack("=BBxxi", family, target.max_prefixlen, -1) + target.packed


def _open() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG)


def _open_inside(namespace: Path) -> socket.socket:
    made: list[socket.socket] = []
    failed: list[OSError] = []

    def enter() -> None:
        try:
            enter_namespace(namespace)
            made.append(_open())
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=enter, name="enter-netns")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]
