"""Looks at the TCP sockets of a namespace."""

from collections.abc import Set as AbstractSet
from pathlib import Path

from deploy.recorder.diag import DumpReader, Sample
from deploy.recorder.netlink import DiagSocket
from deploy.recorder.peers import Peers


class SocketSource:
    """The counters of one node's connections to its peers."""

    def __init__(
        self, *, node: int, peers: Peers, ignored_ports: AbstractSet[int] = frozenset(), namespace: Path | None = None
    ) -> None:
        self.node = node
        self._diag = DiagSocket(namespace, targets=peers.addresses)
        self._reader = DumpReader(peers, ignored_ports=ignored_ports)

    def look(self, now_s: float) -> Sample:
        """What is established now; a peer without a connection has no row.  Raises OSError."""
        return self._reader.sample(self._diag.dump(), at_s=now_s, node=self.node)

    def close(self) -> None:
        """Give the socket back."""
        self._diag.close()
