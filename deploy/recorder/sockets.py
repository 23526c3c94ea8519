"""Looks at all TCP sockets of a namespace, and what they cost."""

import socket
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from deploy.recorder.diag import Sample, sample_of
from deploy.recorder.netlink import DiagSocket
from deploy.recorder.peers import Peers

RARELY: Final = 8  # a family without any peer is looked at once in so many looks: a dump walks the kernel's whole table


class SocketSource:
    """The counters of one node's connections to its peers."""

    def __init__(
        self, *, node: int, peers: Peers, ignored_ports: AbstractSet[int] = frozenset(), namespace: Path | None = None
    ) -> None:
        self.node = node
        self._peers = peers
        self._ignored_ports = ignored_ports
        self._diag = DiagSocket(namespace)
        self._until_next = dict.fromkeys(peers.families, 0)

    def look(self, now_s: float) -> Sample:
        """What is established now; a peer without a connection has no row.  Raises OSError."""
        dumps: list[bytes] = []
        for family in self._until_next:
            if self._until_next[family] > 0:
                self._until_next[family] -= 1
                continue
            dump = self._diag.dump(family)
            dumps.append(dump)
            if family != socket.AF_INET and not dump:
                self._until_next[family] = RARELY - 1
        return sample_of(dumps, peers=self._peers, ignored_ports=self._ignored_ports, at_s=now_s, node=self.node)

    def close(self) -> None:
        """Give the socket back."""
        self._diag.close()
