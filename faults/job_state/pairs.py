"""The connections of one node to one peer: the kernel's counters, and since when they have not moved.

Durations count in samples as well as in seconds: two equal samples 3 s apart are weaker evidence than twelve, because a
busy machine may have run neither the job nor the agent.
"""

from dataclasses import dataclass, field
from math import inf

from faults.observations import Socket

HANDSHAKE_BYTES = 1  # the SYN counts as acknowledged, not as received


@dataclass(slots=True)
class PairTraffic:
    at_s: float
    socket: Socket
    moved_s: float = field(init=False)  # bytes moved between these two samples
    moved_from_s: float = -inf
    stuck_since_s: float | None = None  # sent and not acknowledged
    unread_since_s: float | None = None  # received and not read
    stuck_samples: int = 0
    unread_samples: int = 0

    def __post_init__(self) -> None:
        self.moved_s = self.at_s
        if self.socket.unacked:
            self.stuck_since_s, self.stuck_samples = self.at_s, int(self.socket.unacked > 0)
        if self.socket.read_queue_bytes:
            self.unread_since_s, self.unread_samples = self.at_s, int(self.socket.read_queue_bytes > 0)

    def observe(self, at_s: float, socket: Socket) -> None:
        before, before_s = self.socket, self.at_s
        self.socket, self.at_s = socket, at_s
        acked = socket.acked_bytes != before.acked_bytes
        received = socket.received_bytes != before.received_bytes
        if acked or received:
            self.moved_from_s, self.moved_s = before_s, at_s
        if not socket.unacked:
            self.stuck_since_s, self.stuck_samples = None, 0
        elif acked or self.stuck_since_s is None:
            self.stuck_since_s, self.stuck_samples = at_s, 1
        else:
            self.stuck_samples += 1
        if not socket.read_queue_bytes:
            self.unread_since_s, self.unread_samples = None, 0
        elif received or socket.read_queue_bytes != before.read_queue_bytes or self.unread_since_s is None:
            self.unread_since_s, self.unread_samples = at_s, 1
        else:
            self.unread_samples += 1

    def stuck_s(self) -> float:
        """Return for how long, by the samples, no outstanding byte has been acknowledged."""
        return 0.0 if self.stuck_since_s is None else self.at_s - self.stuck_since_s

    def unread_s(self) -> float:
        """Return for how long, by the samples, received bytes have been unread."""
        return 0.0 if self.unread_since_s is None else self.at_s - self.unread_since_s
