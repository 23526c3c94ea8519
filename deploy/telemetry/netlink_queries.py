"""Asking for sockets that are known, each by its ports, addresses and cookie.

A dump walks the kernel's whole table of connections, 0.6 ms of a core for the usual 262,144 buckets; to find one socket
costs 3 us, its counters included.  So between two dumps only the known ones are asked for.  The cookie is the kernel's
own number of a socket: where another one has taken its ports since, the answer is an error, as it is where the socket
is gone.  Answers come in the order of the questions, each of the shape that the dump had.
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
    Question,
)
from deploy.telemetry.netlink_buffers import Frames

MAX_AT_ONCE: Final = 64  # so that the answers, 1.3 KiB of memory each, find room in the usual 208 KiB of a socket
_HEAD_WORDS: Final = HEADER.size // 4
_ID_AT: Final = _HEAD_WORDS + 2
_WORDS: Final = _ID_AT + IDENTITY.stop - IDENTITY.start


class Questions:
    """About all sockets of a dump.  `parts` are their messages, group by group."""

    def __init__(self, known: Known, parts: Sequence[Words]) -> None:
        self.sockets = sum(map(len, parts))
        asked = np.concatenate([_asked(words) for words in parts])
        batches = np.split(asked, range(MAX_AT_ONCE, len(asked), MAX_AT_ONCE))
        self._questions = tuple(Question(some.tobytes(), len(some)) for some in batches)
        lengths = [
            bytes([4 * group.shape.words & 0xFF]) * len(words) for group, words in zip(known, parts, strict=True)
        ]
        self._expected = {
            LENGTH_BYTE: b"".join(lengths),
            KIND_BYTE: bytes([SOCK_DIAG_BY_FAMILY]) * self.sockets,
            STATE_BYTE: bytes([TCP_ESTABLISHED]) * self.sockets,
        }

    def answered(self, diag: DiagSocket, frames: Frames, *, look: int) -> bool:
        """Whether all are there and established; then their messages are in that look's frame."""
        if not diag.ask(self._questions, frames, look=look):
            return False
        rows = slice(0, self.sockets)
        return all(frames.column(octet, look=look, rows=rows) == told for octet, told in self._expected.items())


def _asked(words: Words) -> Words:
    """A message for each: nlmsghdr, inet_diag_req_v2 with the identity as the kernel told it."""
    asked = np.zeros((len(words), _WORDS), np.uint32)
    asked[:, 0] = 4 * _WORDS
    asked[:, 1] = SOCK_DIAG_BY_FAMILY | NLM_F_REQUEST << 16
    asked[:, _HEAD_WORDS] = words[:, STATE] & 0xFF | IPPROTO_TCP << 8 | INFO_WANTED << 16  # the first octet: family
    asked[:, _HEAD_WORDS + 1] = ESTABLISHED
    asked[:, _ID_AT:] = words[:, IDENTITY]
    return asked
