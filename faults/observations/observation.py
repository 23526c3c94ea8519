"""What is common to all observations: who saw it, of whom, when."""

from typing import NamedTuple

from faults.observations.kinds import FlightProgress, PointToPoint, Values


class Observation(NamedTuple):
    """One thing seen at one moment.  Its kind is the type of its values.

    Nodes and ranks are the indices of a job; names are given to them at the border.
    """

    at_s: float  # when it was known to the one who saw it, by that node's clock
    node: int
    values: Values
    rank: int | None = None
    peer: int | None = None  # the node at the other end, where there is one

    @property
    def ranks(self) -> tuple[int, ...]:
        """All that it speaks of: its own, and those that are named inside."""
        own = () if self.rank is None else (self.rank,)
        if isinstance(self.values, PointToPoint):
            return (*own, self.values.source, self.values.to)
        return (*own, *self.values.ranks) if isinstance(self.values, FlightProgress) else own
