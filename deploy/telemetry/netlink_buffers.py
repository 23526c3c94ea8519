"""Buffers for the kernel's replies on the same sockets at several polls: polls x sockets x octets.

A netlink reply is one datagram.  recvmmsg(2) receives many of them in one call, each at its own place.  The places form
a matrix, so that all polls are read together later without a copy.
"""

import ctypes
import socket
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

LINE_BYTES: Final = 64  # rows begin at cache lines


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


_receive: Final = ctypes.CDLL(None, use_errno=True).recvmmsg
_receive.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)


class Frames:
    """Buffers for a number of polls and sockets, each message of at most `width` octets, in one block of memory."""

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
        """Copy messages from a dump, a matrix for each shape."""
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
