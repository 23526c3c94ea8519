"""The samples of one node's agent, and whether the job's sockets have vanished from the node."""

from collections import deque

KEPT_EVENTS = 8


class NodeSamples:
    """The samples of a node's agent about the node itself."""

    __slots__ = ("device_events", "look_s", "peers", "socketed_s", "vanished_s")

    def __init__(self) -> None:
        self.look_s: float | None = None
        self.peers = 0
        self.socketed_s: float | None = None  # the last sample with a socket
        self.vanished_s: float | None = None  # the first later sample without one
        self.device_events: deque[tuple[float, str]] = deque(maxlen=KEPT_EVENTS)

    def look(self, at_s: float, peers: int) -> None:
        """Add a sample with sockets to that many peers."""
        self.look_s, self.peers = at_s, peers
        if peers:
            self.socketed_s, self.vanished_s = at_s, None
        elif self.socketed_s is not None and self.vanished_s is None:
            self.vanished_s = at_s
