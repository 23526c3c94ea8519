"""Finds a separate prober's peers by occasional polls of the sockets, which it does not report."""

from collections.abc import Sequence
from typing import Final, Protocol

from deploy.telemetry.diag import Sample
from faults.observations import Observation

POLLED_EVERY_S: Final = 5.0  # each poll is a dump; a new peer is found after this time at most


class Sockets(Protocol):
    """Polls a node's connections."""

    def poll(self, now_s: float) -> Sequence[Sample]:
        """Return the present samples of all peers."""
        ...

    def close(self) -> None:
        """Close the sockets."""
        ...


class Talking:
    """A `Source` without observations that keeps the peers up to date.  After a failed poll the last peers stay."""

    name = "sockets"
    period_s = POLLED_EVERY_S

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets

    def poll(self, now_s: float) -> Sequence[Observation]:
        """Return no observations.  Raise OSError."""
        self._sockets.poll(now_s)
        return ()

    def close(self) -> None:
        self._sockets.close()
