"""Looks at the TCP sockets of a namespace: a dump once a second, and between two only the sockets that it told of.

A connection that ends is missed at once, for its socket is asked for by name; one that begins is seen at the next dump.
While connections come and go every look is a dump.  Looks at the same sockets are only kept at first, and read
together: the numbers are few, but what reads them has left the processor's caches by the next look.  None is held back
that is news: that a socket is gone or new, or that the kernel waits for one for longer than before.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from deploy.telemetry.diag import DumpReader, Group, Known, Sample, Words, samples
from deploy.telemetry.netlink import DiagSocket
from deploy.telemetry.netlink_buffers import Frames
from deploy.telemetry.netlink_queries import Questions
from deploy.telemetry.peers import Peers

DUMPED_EVERY_S: Final = 1.0
EARLY_S: Final = 0.05  # looks are a little early or late
MAX_ASKED: Final = 384  # sockets; of more a dump costs less
MAX_IN_VAIN: Final = 3  # of a kernel that does not answer as it dumps


class SocketSource:
    """The counters of one node's connections to its peers.  `most_held`: looks that may be handed over together."""

    def __init__(
        self,
        *,
        node: int,
        peers: Peers,
        ignored_ports: AbstractSet[int] = frozenset(),
        namespace: Path | None = None,
        most_held: int = 1,
    ) -> None:
        self.node = node
        self._diag = DiagSocket(namespace, targets=peers.addresses)
        self._reader = DumpReader(peers, ignored_ports=ignored_ports)
        self._most_held = most_held
        self._known: Known = ()
        self._talking_of: Known = ()
        self._talking: frozenset[int] = frozenset()
        self._frames = Frames(looks=most_held, sockets=1, width=1)
        self._questions: Questions | None = None
        self._in_vain = 0
        self._dumped_s = 0.0
        self._held_s: list[float] = []  # moments of the looks in the frames
        self._backoff = 0

    def look(self, now_s: float, *, wanted: bool = True) -> list[Sample]:
        """What is established now; a peer without a connection has no row.  What is not `wanted` now may come later,
        with the looks that follow.  Raises OSError.
        """
        done = [] if self._answered(now_s) else self._dumped(now_s)
        if done:
            return done
        backoff = self._largest_backoff()
        news, self._backoff = backoff > self._backoff, backoff
        return self.held() if wanted or news or len(self._held_s) >= self._most_held else []

    def held(self) -> list[Sample]:
        """Looks that were not handed over yet."""
        times_s, self._held_s = self._held_s, []
        looks = self._frames.words[: len(times_s)]
        parts = [looks[:, rows, : group.shape.words] for group, rows in self._places()]
        return samples(self._known, parts, times_s=times_s, node=self.node) if times_s else []

    def talking(self) -> frozenset[int]:
        """The nodes that connections lead to, as of the last dump."""
        if self._talking_of is not self._known:
            self._talking_of = self._known
            self._talking = frozenset(peer for group in self._known for peer in group.peers.tolist())
        return self._talking

    def close(self) -> None:
        """Give the socket back."""
        self._diag.close()

    def _answered(self, now_s: float) -> bool:
        """Whether those of the last dump are all there, and it is not too old."""
        if self._questions is None or not 0.0 <= now_s - self._dumped_s < DUMPED_EVERY_S - EARLY_S:
            return False
        if self._questions.answered(self._diag, self._frames, look=len(self._held_s)):
            self._held_s.append(now_s)
            return True
        self._questions = None
        self._in_vain += 1
        return False

    def _dumped(self, now_s: float) -> list[Sample]:
        """Nothing where the sockets are the same; else the looks at the others before, and this one."""
        known, parts = self._reader.read(self._diag.dump())
        self._dumped_s = now_s
        if known is self._known and 0 < sum(map(len, parts)) <= MAX_ASKED:
            self._settled(parts)
            self._frames.put(parts, look=len(self._held_s))
            self._held_s.append(now_s)
            return []
        before = self.held()
        self._known, self._questions, self._in_vain = known, None, 0
        this = samples(known, [part[None] for part in parts], times_s=[now_s], node=self.node)
        return [*before, *this]

    def _settled(self, parts: list[Words]) -> None:
        """The same sockets as at the last dump: from now on they can be asked for."""
        if self._questions is None and self._in_vain < MAX_IN_VAIN:
            self._questions = Questions(self._known, parts)
        sockets, width = sum(map(len, parts)), max(4 * group.shape.words for group in self._known)
        if sockets > self._frames.sockets or width > self._frames.width:
            self._frames = Frames(looks=self._most_held, sockets=sockets, width=width)

    def _largest_backoff(self) -> int:
        """At the last look."""
        look = len(self._held_s) - 1
        return max(max(self._frames.column(group.backoff_byte, look=look, rows=rows)) for group, rows in self._places())

    def _places(self) -> Iterator[tuple[Group, slice]]:
        """The rows of each group in a frame."""
        first = 0
        for group in self._known:
            yield group, slice(first, first + group.rows)
            first += group.rows
