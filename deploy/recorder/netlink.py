"""Asking the kernel for the established TCP sockets of one network namespace (sock_diag(7), INET_DIAG).

A netlink socket belongs to the namespace in which it was made.  To make one in another namespace a thread enters it and
ends there; the socket stays.  Entering needs CAP_SYS_ADMIN, a recorder that is started inside the namespace needs no
right at all: INET_DIAG answers anybody.
"""

import ctypes
import os
import socket
import struct
import threading
from pathlib import Path
from typing import Final

NETLINK_SOCK_DIAG: Final = 4
SOCK_DIAG_BY_FAMILY: Final = 20
NLM_F_REQUEST_DUMP: Final = 0x001 | 0x300
NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3
INET_DIAG_INFO: Final = 2  # the attribute that holds tcp_info
ESTABLISHED: Final = 1 << 1  # bit TCP_ESTABLISHED of idiag_states
CLONE_NEWNET: Final = 0x40000000
HEADER: Final = struct.Struct("=IHHII")
BUFFER_BYTES: Final = 1 << 18
ANSWER_S: Final = 2.0  # the kernel answers at once; a bound, so that nothing ever waits for ever
NAMED: Final = Path("/run/netns")


def _request(family: int, sequence: int) -> bytes:
    # sdiag_family, sdiag_protocol, idiag_ext, pad, idiag_states, then an inet_diag_sockid of zeros: any socket
    body = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), ESTABLISHED) + bytes(48)
    return HEADER.pack(HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, sequence, 0) + body


class DiagSocket:
    """One netlink socket; `dump` is one look."""

    def __init__(self, namespace: Path | None = None) -> None:
        self._socket = _open() if namespace is None else _open_inside(namespace)
        self._socket.settimeout(ANSWER_S)
        self._buffer = bytearray(BUFFER_BYTES)
        self._sequence = 0

    def dump(self, family: int) -> bytes:
        """All messages of one dump, end mark left out.  Raises OSError, as when the kernel lacks the module."""
        self._sequence += 1
        self._socket.send(_request(family, self._sequence))
        parts: list[bytes] = []
        while not self._take(parts):
            pass
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take(self, parts: list[bytes]) -> bool:
        """One datagram of the dump; whether it was the last."""
        size = self._socket.recv_into(self._buffer)
        if size < HEADER.size:
            raise OSError("the kernel ended a dump of sockets without an end mark")
        _length, kind, _flags, sequence, _port = HEADER.unpack_from(self._buffer)
        if sequence != self._sequence:
            return False  # the rest of an answer that was given up
        if kind == NLMSG_ERROR:
            number = -struct.unpack_from("=i", self._buffer, HEADER.size)[0]
            raise OSError(number, os.strerror(number))
        if kind == NLMSG_DONE:
            return True
        end = _messages_end(self._buffer, size)
        parts.append(bytes(self._buffer[:end]))
        return end < size

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()


def _messages_end(buffer: bytearray, size: int) -> int:
    """Where the end mark begins: it comes alone, or as the last message of a datagram."""
    mark = size - HEADER.size - 4  # its body is one int
    if mark >= 0:
        length, kind = struct.unpack_from("=IH", buffer, mark)
        if kind == NLMSG_DONE and length == HEADER.size + 4:
            return mark
    return size


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
    """Of `ip netns` by name, of a process by its id; None: where this process is."""
    if name is not None:
        return Path(name) if "/" in name else NAMED / name
    return Path(f"/proc/{pid}/ns/net") if pid is not None else None
