"""The world as the healer sees it, and the four things that it can do there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from deploy.remediation.ray_nodes import RayNode
from deploy.training.run_status import RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What was seen just now."""

    nodes: tuple[RayNode, ...]  # living
    runs: tuple[RunView, ...]  # training
    silent: frozenset[str] = frozenset()  # runs that are there and do not answer

    def called(self, name: str) -> tuple[RayNode, ...]:
        """The living Ray nodes of a node of the fleet: several when it has come back under another id."""
        return tuple(node for node in self.nodes if node.name == name)

    def run(self, name: str) -> RunView | None:
        """One run; None when it is over."""
        return next((run for run in self.runs if run.run == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReading:
    """What a probe of a node found."""

    passed: bool
    detail: str


class World(Protocol):
    """Everything raises ActuationError; everything may be done twice."""

    async def look(self) -> Sight:
        """See."""

    async def drain(self, ray_id: str, *, reason: str, deadline_s: float) -> None:
        """Place nothing new on a node."""

    async def end_workers(self, run: str, *, attempt: int, ray_ids: frozenset[str]) -> int:
        """Kill a run's workers on some nodes; how many there were."""

    async def probe(self, ray_id: str, *, good: Sequence[str]) -> ProbeReading:
        """Exchange data between a node and two that are known to be good."""

    async def call_out(self, hook: str, *, node: str, case_id: str) -> str:
        """Run the operator's command of that name; what came of it, empty when there is none."""
