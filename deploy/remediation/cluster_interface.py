"""The cluster as the remediation controller observes it, and the actions that it can take there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from deploy.remediation.ray_nodes import RayNode
from fleetwright.ray_train.run_status import RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """One observation of the cluster."""

    nodes: tuple[RayNode, ...]  # alive
    runs: tuple[RunView, ...]  # training runs
    silent: frozenset[str] = frozenset()  # runs whose status actor exists and does not respond

    def nodes_named(self, name: str) -> tuple[RayNode, ...]:
        """Return the living Ray nodes of a node of the fleet: several if it has returned under another id."""
        return tuple(node for node in self.nodes if node.name == name)

    def run(self, name: str) -> RunView | None:
        """Return one run; None if it is over."""
        return next((run for run in self.runs if run.run == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReading:
    passed: bool
    detail: str


class ClusterInterface(Protocol):
    """Every method raises ActuationError, and every action is idempotent."""

    async def observe(self) -> ClusterSnapshot:
        """Observe the cluster."""

    async def drain(self, ray_id: str, *, reason: str, deadline_s: float) -> None:
        """Stop new work on a node."""

    async def end_workers(self, run: str, *, attempt: int, ray_ids: frozenset[str]) -> int:
        """Kill the workers of a run on some nodes; return their number."""

    async def probe(self, ray_id: str, *, good: Sequence[str]) -> ProbeReading:
        """Exchange data between a node and two good nodes."""

    async def run_hook(self, hook: str, *, node: str, case_id: str) -> str:
        """Run the operator's command of that name; return its output, empty if there is no such command."""
