"""What a watcher is told of its job."""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, model_validator

from faults.detector import Job
from faults.watcher import WatcherSettings
from fleet.documents import Flaw, Frozen, RuleError

MOST_NODES = 100_000
MOST_RANKS = 1_000_000

Index = Annotated[int, Field(ge=0, lt=MOST_RANKS)]
Seconds = Annotated[float, Field(gt=0.0, le=60.0)]


class JobFile(Frozen):
    """One job: its nodes, where its ranks are, who talks to whom."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = "job"
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)]
    ranks_per_node: Annotated[int, Field(ge=1, le=64)] = 1
    rank_node: tuple[Index, ...] = ()  # node of each rank; without it ranks fill the nodes one after the other
    groups: tuple[tuple[Index, ...], ...] = ()  # ranks of each communicator; none: one of all
    look_period_s: Seconds = 0.25
    heartbeat_s: Seconds = 0.5
    settings: WatcherSettings = WatcherSettings()

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        RuleError.raise_for(self._flaws())
        return self

    def job(self) -> Job:
        """As detectors have it."""
        filled = tuple(rank // self.ranks_per_node for rank in range(self.nodes * self.ranks_per_node))
        return Job(
            nodes=self.nodes,
            rank_node=self.rank_node or filled,
            groups=self.groups,
            look_period_s=self.look_period_s,
            heartbeat_s=self.heartbeat_s,
        )

    def _flaws(self) -> Iterator[Flaw]:
        ranks = len(self.rank_node) or self.nodes * self.ranks_per_node
        for at, node in enumerate(self.rank_node):
            if node >= self.nodes:
                yield ("rank_node", at), f"expected a node from 0 to {self.nodes - 1}, got {node}"
        for at, group in enumerate(self.groups):
            for inner, rank in enumerate(group):
                if rank >= ranks:
                    yield ("groups", at, inner), f"expected a rank from 0 to {ranks - 1}, got {rank}"
