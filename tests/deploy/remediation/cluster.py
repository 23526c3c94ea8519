"""A Ray cluster that records the actions it receives and changes only when a test changes it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deploy.common.errors import ActuationError
from deploy.remediation.actuator import ProbeReading
from deploy.remediation.cluster_interface import HEAD_RESOURCE, PROBE_ONLY_LABEL, ClusterSnapshot, RayNode
from fleetwright.ray_train.run_status import RankLocation, RunPhase, RunView

RESOURCES = {"CPU": 1.0}


def node(name: str, *, ray_id: str | None = None, **more: Any) -> RayNode:
    """A node that is alive and has resources for a worker."""
    return RayNode(id=ray_id or f"id-{name}", name=name, resources=RESOURCES, **{"available": RESOURCES} | more)


def head() -> RayNode:
    """The head node of the cluster."""
    return RayNode(id="id-head", name="head", resources={HEAD_RESOURCE: 1.0})


def probe_only(name: str) -> RayNode:
    """A node that has returned for its probe."""
    return RayNode(id=f"again-{name}", name=name, labels={PROBE_ONLY_LABEL: "1"})


def run_on(*names: str, attempt: int = 1, name: str = "llm", **more: Any) -> RunView:
    """A run with a rank on each of these nodes."""
    places = tuple(
        RankLocation(rank=rank, node_id=f"id-{node}", address=f"10.0.0.{rank}", pid=100 + rank)
        for rank, node in enumerate(names)
    )
    described: dict[str, Any] = {"phase": RunPhase.RUNNING, "worker_resources": RESOURCES, "checkpoint_step": 9} | more
    return RunView(run=name, attempt=attempt, places=places, **described)


@dataclass
class FakeCluster:
    """Records its calls."""

    nodes: list[RayNode]
    runs: list[RunView]
    calls: list[str] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)
    probe_passes: bool = True
    gate: asyncio.Event | None = None  # while not set, hooks wait for it

    async def observe(self) -> ClusterSnapshot:
        return ClusterSnapshot(nodes=tuple(self.nodes), runs=tuple(self.runs))

    async def drain(self, ray_id: str, *, reason: str, deadline_s: float) -> None:  # noqa: ARG002 - of the protocol
        self._record("drain", ray_id)
        self.nodes = [replace(each, draining=True) if each.id == ray_id else each for each in self.nodes]

    async def end_workers(self, run: str, *, attempt: int, ray_ids: frozenset[str]) -> int:
        self._record("end", f"{run}/{attempt}")
        view = next(each for each in self.runs if each.run == run)
        return len(view.places_on(ray_ids))

    async def probe(self, ray_id: str, *, good: Sequence[str]) -> ProbeReading:
        self._record("probe", f"{ray_id} {' '.join(good)}")
        return ProbeReading(passed=self.probe_passes, detail="measured")

    async def run_hook(self, hook: str, *, node: str, case_id: str) -> str:  # noqa: ARG002 - of the protocol
        self._record("hook", f"{hook} {node}")
        if self.gate is not None:
            await self.gate.wait()
        return "done"

    def run_moves(self, view: RunView) -> None:
        """Ray Train has restarted the run."""
        self.runs = [view if each.run == view.run else each for each in self.runs]

    def actions(self) -> list[str]:
        """The calls since the last request for them."""
        found, self.calls = self.calls, []
        return found

    def _record(self, action: str, of: str) -> None:
        self.calls.append(f"{action} {of}")
        if action in self.refuses:
            raise ActuationError(f"{action} refused")
