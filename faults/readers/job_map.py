"""The job's ranks and nodes, and the origin of times."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from faults.readers.parse_errors import MalformedError


@dataclass(frozen=True, slots=True)
class JobMap:
    """The node of each rank; times become relative to `zero_s`."""

    nodes: int
    rank_node: tuple[int, ...]
    zero_s: float = 0.0
    earliest_s: float = -math.inf  # after zero; a time outside is of a broken clock or line
    latest_s: float = math.inf
    hosts: Mapping[str, int] = field(default_factory=dict)  # node by host name or address

    def node(self, rank: int) -> int:
        if not 0 <= rank < len(self.rank_node):
            raise MalformedError("of a rank outside the job")
        return self.rank_node[rank]

    def known(self, node: int) -> int:
        """Return the node; raise MalformedError if it is outside the job."""
        if not 0 <= node < self.nodes:
            raise MalformedError("of a node outside the job")
        return node

    def host(self, name: str) -> int:
        node = self.hosts.get(name)
        if node is None:
            raise MalformedError("of a host outside the job")
        return self.known(node)

    def time(self, clock_s: float) -> float:
        return self.near(clock_s - self.zero_s)

    def near(self, at_s: float) -> float:
        """Return a time after zero within the job's range."""
        if not self.earliest_s <= at_s <= self.latest_s:
            raise MalformedError("time is far from the job's")
        return at_s
