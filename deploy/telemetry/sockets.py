"""Polls the TCP sockets of a namespace: a dump once a second, and in between queries of the known sockets.

A query finds a connection that ended at once; a new one is found by the next dump.  While connections change, every
poll is a dump.  Polls of the same sockets are held and processed together, because the code that reads them has left
the processor's caches by the next poll.  Changes are never held: a socket that is gone or new, or a larger backoff.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from socket import IPPROTO_TCP
from typing import Final

import numpy as np

from deploy.telemetry.diag import (
    IDENTITY,
    KIND_BYTE,
    LENGTH_BYTE,
    STATE,
    STATE_BYTE,
    DumpReader,
    Group,
    Known,
    Sample,
    Words,
    samples,
)
from deploy.telemetry.netlink import (
    ESTABLISHED,
    HEADER,
    INFO_WANTED,
    NLM_F_REQUEST,
    SOCK_DIAG_BY_FAMILY,
    TCP_ESTABLISHED,
    DiagSocket,
    Frames,
    Query,
)
from deploy.telemetry.peers import Peers

MAX_AT_ONCE: Final = 64  # so that the replies, 1.3 KiB of memory each, fit the usual 208 KiB of a socket
_HEAD_WORDS: Final = HEADER.size // 4
_ID_AT: Final = _HEAD_WORDS + 2
_WORDS: Final = _ID_AT + IDENTITY.stop - IDENTITY.start
DUMPED_EVERY_S: Final = 1.0
EARLY_S: Final = 0.05  # polls are a little early or late
MAX_QUERIED: Final = 384  # sockets; for more, a dump costs less
MAX_FAILED_QUERIES: Final = 3  # of a kernel whose queries contradict its dumps


class SocketQueries:
    """Requests for all sockets of a dump, each by ports, addresses and cookie.  `parts` are their messages, by group.

    A dump walks the kernel's whole table of connections, 0.6 ms of a core for the usual 262,144 buckets; a query of
    one socket costs 3 us.  The cookie is the kernel's number of a socket: if the socket is gone, or another has its
    ports, the reply is an error.  Replies come in the order of the queries, in the shape of the dump.
    """

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
        if not diag.query(self._queries, frames, poll=poll):
            return False
        rows = slice(0, self.sockets)
        return all(frames.column(octet, poll=poll, rows=rows) == reported for octet, reported in self._expected.items())


class SocketSource:
    """The counters of one node's connections to its peers.  `max_held`: polls that may be processed together."""

    def __init__(
        self,
        *,
        node: int,
        peers: Peers,
        ignored_ports: AbstractSet[int] = frozenset(),
        namespace: Path | None = None,
        max_held: int = 1,
    ) -> None:
        self.node = node
        self._diag = DiagSocket(namespace, targets=peers.addresses)
        self._reader = DumpReader(peers, ignored_ports=ignored_ports)
        self._max_held = max_held
        self._known: Known = ()
        self._connected_peers_of: Known = ()
        self._connected_peers: frozenset[int] = frozenset()
        self._frames = Frames(polls=max_held, sockets=1, width=1)
        self._queries: SocketQueries | None = None
        self._failed_queries = 0
        self._dumped_s = 0.0
        self._held_s: list[float] = []  # times of the polls in the frames
        self._backoff = 0

    def poll(self, now_s: float, *, wanted: bool = True) -> list[Sample]:
        """Return the established connections; a peer without one has no row.  Unless `wanted`, the result may come
        later, with following polls.  Raise OSError.
        """
        done = [] if self._replied(now_s) else self._dumped(now_s)
        if done:
            return done
        backoff = self._largest_backoff()
        changes, self._backoff = backoff > self._backoff, backoff
        return self.held() if wanted or changes or len(self._held_s) >= self._max_held else []

    def held(self) -> list[Sample]:
        times_s, self._held_s = self._held_s, []
        polls = self._frames.words[: len(times_s)]
        parts = [polls[:, rows, : group.shape.words] for group, rows in self._places()]
        return samples(self._known, parts, times_s=times_s, node=self.node) if times_s else []

    def connected_peers(self) -> frozenset[int]:
        if self._connected_peers_of is not self._known:
            self._connected_peers_of = self._known
            self._connected_peers = frozenset(peer for group in self._known for peer in group.peers.tolist())
        return self._connected_peers

    def close(self) -> None:
        self._diag.close()

    def _replied(self, now_s: float) -> bool:
        """Return whether the sockets of the last dump all exist, and it is recent."""
        if self._queries is None or not 0.0 <= now_s - self._dumped_s < DUMPED_EVERY_S - EARLY_S:
            return False
        if self._queries.replied(self._diag, self._frames, poll=len(self._held_s)):
            self._held_s.append(now_s)
            return True
        self._queries = None
        self._failed_queries += 1
        return False

    def _dumped(self, now_s: float) -> list[Sample]:
        """Return nothing if the sockets are the same; otherwise the held polls and this one."""
        known, parts = self._reader.read(self._diag.dump())
        self._dumped_s = now_s
        if known is self._known and 0 < sum(map(len, parts)) <= MAX_QUERIED:
            self._settled(parts)
            self._frames.put(parts, poll=len(self._held_s))
            self._held_s.append(now_s)
            return []
        before = self.held()
        self._known, self._queries, self._failed_queries = known, None, 0
        this = samples(known, [part[None] for part in parts], times_s=[now_s], node=self.node)
        return [*before, *this]

    def _settled(self, parts: list[Words]) -> None:
        """Query these sockets from now on, because they are the same as at the last dump."""
        if self._queries is None and self._failed_queries < MAX_FAILED_QUERIES:
            self._queries = SocketQueries(self._known, parts)
        sockets, width = sum(map(len, parts)), max(4 * group.shape.words for group in self._known)
        if sockets > self._frames.sockets or width > self._frames.width:
            self._frames = Frames(polls=self._max_held, sockets=sockets, width=width)

    def _largest_backoff(self) -> int:
        poll = len(self._held_s) - 1
        return max(max(self._frames.column(group.backoff_byte, poll=poll, rows=rows)) for group, rows in self._places())

    def _places(self) -> Iterator[tuple[Group, slice]]:
        first = 0
        for group in self._known:
            yield group, slice(first, first + group.rows)
            first += group.rows


def _requested(words: Words) -> Words:
    """Return a request for each socket: nlmsghdr, inet_diag_req_v2 with the identity from the dump."""
    requested = np.zeros((len(words), _WORDS), np.uint32)
    requested[:, 0] = 4 * _WORDS
    requested[:, 1] = SOCK_DIAG_BY_FAMILY | NLM_F_REQUEST << 16
    requested[:, _HEAD_WORDS] = words[:, STATE] & 0xFF | IPPROTO_TCP << 8 | INFO_WANTED << 16  # the first octet: family
    requested[:, _HEAD_WORDS + 1] = ESTABLISHED
    requested[:, _ID_AT:] = words[:, IDENTITY]
    return requested
