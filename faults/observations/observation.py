"""The fields of all observations: node, rank, peer and time."""

from typing import NamedTuple

from faults.observations.kinds import FlightProgress, PointToPoint, Values


class Observation(NamedTuple):
    """One observation.  Its kind is the type of its values.

    Nodes and ranks are indices of the job; readers convert names.
    """

    at_s: float  # when the observer knew it, by that node's clock
    node: int
    values: Values
    rank: int | None = None
    peer: int | None = None  # the node at the other end, if any

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return all ranks of an observation: its own, and those in its values."""
        own = () if self.rank is None else (self.rank,)
        if isinstance(self.values, PointToPoint):
            return (*own, self.values.source, self.values.to)
        return (*own, *self.values.ranks) if isinstance(self.values, FlightProgress) else own
