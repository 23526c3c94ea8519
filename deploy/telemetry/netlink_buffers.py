"""Room for what the kernel says of the same sockets at several looks: looks x sockets x octets, filled by few calls.

A reply of netlink is a datagram of its own.  recvmmsg(2) puts many of them, each into its own place, in one call; the
places are laid out as a matrix, so that all looks are read together later, without another copy.
"""

import ctypes
import socket
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

LINE_BYTES: Final = 64  # rows begin at whole lines of a cache


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
    """So many looks at so many sockets, each message of at most `width` octets; all of it one memory."""

    def __init__(self, *, looks: int, sockets: int, width: int) -> None:
        self.looks, self.sockets = looks, sockets
        self.width = -(-width // LINE_BYTES) * LINE_BYTES
        self.octets = bytearray(looks * sockets * self.width)
        self.words: Words = np.frombuffer(self.octets, "<u4").reshape(looks, sockets, self.width // 4)
        self._vectors, self._messages = self._places()
        self._first = ctypes.addressof(self._messages)

    def receive(self, netlink: socket.socket, *, look: int, first: int, count: int) -> bool:
        """Whether as many replies were waiting.  They go to the rows from `first` on."""
        at = self._first + (look * self.sockets + first) * ctypes.sizeof(_Message)
        return bool(_receive(netlink.fileno(), at, count, socket.MSG_DONTWAIT, None) == count)

    def put(self, parts: Sequence[Words], *, look: int) -> None:
        """Messages that came otherwise, a matrix for each shape."""
        first = 0
        for words in parts:
            self.words[look, first : first + len(words), : words.shape[1]] = words
            first += len(words)

    def column(self, octet: int, *, look: int, rows: slice) -> bytearray:
        """One octet of each message of a look: cheaper so than by numpy, for as few as there are."""
        begin = look * self.sockets * self.width + octet
        return self.octets[begin + rows.start * self.width : begin + (rows.stop - 1) * self.width + 1 : self.width]

    def _places(self) -> tuple[Any, Any]:
        """An iovec and a header for each place; what they point to must live as long as they do."""
        count = self.looks * self.sockets
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.octets)) if count else 0
        vectors = (_Vector * count)()
        messages = (_Message * count)()
        for at, (vector, message) in enumerate(zip(vectors, messages, strict=True)):
            vector.base, vector.size = base + at * self.width, self.width
            message.head.vectors, message.head.vector_count = ctypes.addressof(vector), 1
        return vectors, messages
