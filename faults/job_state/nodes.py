"""One node's agent: when it last looked, and whether the job's sockets have gone from the node."""

from collections import deque

KEPT_EVENTS = 8


class NodeSamples:
    """What the agent of one node has said of the node itself."""

    __slots__ = ("device_events", "look_s", "peers", "socketed_s", "vanished_s")

    def __init__(self) -> None:
        self.look_s: float | None = None
        self.peers = 0
        self.socketed_s: float | None = None  # the last look that found a socket
        self.vanished_s: float | None = None  # the first look since that found none
        self.device_events: deque[tuple[float, str]] = deque(maxlen=KEPT_EVENTS)

    def look(self, at_s: float, peers: int) -> None:
        """The agent looked and found sockets to that many peers."""
        self.look_s, self.peers = at_s, peers
        if peers:
            self.socketed_s, self.vanished_s = at_s, None
        elif self.socketed_s is not None and self.vanished_s is None:
            self.vanished_s = at_s
