"""Queries known sockets, each by its ports, addresses and cookie.

A dump walks the kernel's whole table of connections, 0.6 ms of a core for the usual 262,144 buckets; a query of one
socket costs 3 us.  So between two dumps only known sockets are queried.  The cookie is the kernel's number of a socket:
if the socket is gone, or another has its ports, the reply is an error.  Replies come in the order of the queries, in
the shape of the dump.
"""

from collections.abc import Sequence
from socket import IPPROTO_TCP
from typing import Final

import numpy as np

from deploy.telemetry.diag import IDENTITY, KIND_BYTE, LENGTH_BYTE, STATE, STATE_BYTE, Known, Words
from deploy.telemetry.netlink import (
    ESTABLISHED,
    HEADER,
    INFO_WANTED,
    NLM_F_REQUEST,
    SOCK_DIAG_BY_FAMILY,
    TCP_ESTABLISHED,
    DiagSocket,
    Query,
)
from deploy.telemetry.netlink_buffers import Frames

MAX_AT_ONCE: Final = 64  # so that the replies, 1.3 KiB of memory each, fit the usual 208 KiB of a socket
_HEAD_WORDS: Final = HEADER.size // 4
_ID_AT: Final = _HEAD_WORDS + 2
_WORDS: Final = _ID_AT + IDENTITY.stop - IDENTITY.start


class Questions:
    """Requests for all sockets of a dump.  `parts` are their messages, by group."""

    def __init__(self, known: Known, parts: Sequence[Words]) -> None:
        self.sockets = sum(map(len, parts))
        requested = np.concatenate([_requested(words) for words in parts])
        batches = np.split(requested, range(MAX_AT_ONCE, len(requested), MAX_AT_ONCE))
        self._queries = tuple(Query(some.tobytes(), len(some)) for some in batches)
        lengths = [
            bytes([4 * group.shape.words & 0xFF]) * len(words) for group, words in zip(known, parts, strict=True)
        ]
        self._expected = {
            LENGTH_BYTE: b"".join(lengths),
            KIND_BYTE: bytes([SOCK_DIAG_BY_FAMILY]) * self.sockets,
            STATE_BYTE: bytes([TCP_ESTABLISHED]) * self.sockets,
        }

    def replied(self, diag: DiagSocket, frames: Frames, *, poll: int) -> bool:
        """Return whether all sockets exist and are established; then their messages are in that poll's frame."""
        if not diag.ask(self._queries, frames, poll=poll):
            return False
        rows = slice(0, self.sockets)
        return all(frames.column(octet, poll=poll, rows=rows) == reported for octet, reported in self._expected.items())


def _requested(words: Words) -> Words:
    """Return a request for each socket: nlmsghdr, inet_diag_req_v2 with the identity from the dump."""
    requested = np.zeros((len(words), _WORDS), np.uint32)
    requested[:, 0] = 4 * _WORDS
    requested[:, 1] = SOCK_DIAG_BY_FAMILY | NLM_F_REQUEST << 16
    requested[:, _HEAD_WORDS] = words[:, STATE] & 0xFF | IPPROTO_TCP << 8 | INFO_WANTED << 16  # the first octet: family
    requested[:, _HEAD_WORDS + 1] = ESTABLISHED
    requested[:, _ID_AT:] = words[:, IDENTITY]
    return requested
