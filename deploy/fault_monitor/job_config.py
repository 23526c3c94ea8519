"""The job file of a fault monitor."""

import re
from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, model_validator

from api.schemas.faults import NODE_PATTERN
from faults.detector import MAX_NAME, Job, JobFabric
from faults.monitor import MonitorSettings
from fleet.documents import Frozen, RuleError, Violation
from fleet.topology.hostlist import NameSeries, expand_all

MAX_NODES = 100_000
MAX_RANKS = 1 << 17  # as many as a bundle may have

Index = Annotated[int, Field(ge=0, lt=MAX_RANKS)]
Leaf = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Seconds = Annotated[float, Field(gt=0.0, le=60.0)]


class NodeNames(Frozen):
    """The fleet's names of the job's nodes, in the order of their indices."""

    nodes: Annotated[tuple[NameSeries, ...], Field(min_length=1, max_length=MAX_NODES)]

    def of(self, job: "JobConfig") -> tuple[str, ...]:
        names = expand_all(self.nodes)
        RuleError.raise_for(self._violations(names, job))
        return names

    def _violations(self, names: tuple[str, ...], job: "JobConfig") -> Iterator[Violation]:
        if len(names) != job.nodes:
            yield ("nodes",), f"expected {job.nodes} names, one for each node of the job, got {len(names)}"
        if len(set(names)) != len(names):
            yield ("nodes",), "names a node twice"
        if wrong := next((name for name in names if not re.fullmatch(NODE_PATTERN, name)), None):
            yield ("nodes",), f"{wrong!r}: expected up to 160 letters, digits, '.', '_', ':' or '-'"


class JobConfig(Frozen):
    """A job: its nodes, the nodes of its ranks, its communicators and leaf switches."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = "job"
    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)]
    ranks_per_node: Annotated[int, Field(ge=1, le=64)] = 1
    rank_node: tuple[Index, ...] = ()  # node of each rank; empty: ranks fill the nodes in order
    groups: tuple[tuple[Index, ...], ...] = ()  # ranks of each communicator; empty: one of all ranks
    leaves: tuple[Leaf, ...] = ()  # name of the leaf switch of each node; empty: unknown
    look_period_s: Seconds = 0.25
    heartbeat_s: Seconds = 0.5
    settings: MonitorSettings = MonitorSettings()

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        RuleError.raise_for(self._violations())
        return self

    def job(self) -> Job:
        filled = tuple(rank // self.ranks_per_node for rank in range(self.nodes * self.ranks_per_node))
        return Job(
            nodes=self.nodes,
            rank_node=self.rank_node or filled,
            groups=self.groups,
            look_period_s=self.look_period_s,
            heartbeat_s=self.heartbeat_s,
            fabric=JobFabric(self.leaves) if self.leaves else None,
        )

    def _violations(self) -> Iterator[Violation]:
        ranks = len(self.rank_node) or self.nodes * self.ranks_per_node
        if self.rank_node and "ranks_per_node" in self.model_fields_set:
            yield ("ranks_per_node",), "expected ranks_per_node or rank_node, not both"
        if ranks > MAX_RANKS:
            yield (
                ("rank_node" if self.rank_node else "ranks_per_node",),
                f"expected at most {MAX_RANKS:,} ranks in all",
            )
        if self.leaves and len(self.leaves) != self.nodes:
            yield ("leaves",), f"expected {self.nodes} names, one for each node, got {len(self.leaves)}"
        for at, node in enumerate(self.rank_node):
            if node >= self.nodes:
                yield ("rank_node", at), f"expected a node from 0 to {self.nodes - 1}, got {node}"
        for at, group in enumerate(self.groups):
            for inner, rank in enumerate(group):
                if rank >= ranks:
                    yield ("groups", at, inner), f"expected a rank from 0 to {ranks - 1}, got {rank}"
