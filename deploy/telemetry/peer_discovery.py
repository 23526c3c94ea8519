"""Whom a node talks with, for a prober that is alone: now and then a look at the sockets, of which nothing is told."""

from collections.abc import Sequence
from typing import Final, Protocol

from deploy.telemetry.diag import Sample
from faults.observations import Observation

LOOKED_EVERY_S: Final = 5.0  # a dump each time; a job that begins or moves is found as late


class Sockets(Protocol):
    """What looks at a node's connections."""

    def look(self, now_s: float) -> Sequence[Sample]:
        """All peers, now."""
        ...

    def close(self) -> None:
        """Give back what was opened."""
        ...


class Talking:
    """A `Source` that tells nothing: the sockets then know whom.  After a look that failed they know what they did."""

    name = "sockets"
    period_s = LOOKED_EVERY_S

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets

    def look(self, now_s: float) -> Sequence[Observation]:
        """None.  Raises OSError."""
        self._sockets.look(now_s)
        return ()

    def close(self) -> None:
        """Give back what was opened."""
        self._sockets.close()
