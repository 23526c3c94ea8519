"""A Ray cluster as the healer sees it, which does what it is told once it is told to."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deploy.common.errors import ActuationError
from deploy.remediation.cluster_interface import ProbeReading, Sight
from deploy.remediation.ray_nodes import HEAD_RESOURCE, PROBATION_LABEL, RayNode
from deploy.training.run_status import Place, RunPhase, RunView

ROOM = {"CPU": 1.0}


def node(name: str, *, ray_id: str | None = None, **more: Any) -> RayNode:
    """A living node with room for a worker."""
    return RayNode(id=ray_id or f"id-{name}", name=name, resources=ROOM, **{"available": ROOM} | more)


def head() -> RayNode:
    """Where the cluster's own services are."""
    return RayNode(id="id-head", name="head", resources={HEAD_RESOURCE: 1.0})


def on_probation(name: str) -> RayNode:
    """Back to be probed."""
    return RayNode(id=f"again-{name}", name=name, labels={PROBATION_LABEL: "1"})


def run_on(*names: str, attempt: int = 1, name: str = "llm", **more: Any) -> RunView:
    """A run with a rank on each of these nodes."""
    places = tuple(
        Place(rank=rank, node_id=f"id-{node}", address=f"10.0.0.{rank}", pid=100 + rank)
        for rank, node in enumerate(names)
    )
    described: dict[str, Any] = {"phase": RunPhase.RUNNING, "worker_resources": ROOM, "checkpoint_step": 9} | more
    return RunView(run=name, attempt=attempt, places=places, **described)


@dataclass
class FakeWorld:
    """Remembers what it was asked; nothing happens by itself."""

    nodes: list[RayNode]
    runs: list[RunView]
    asked: list[str] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)
    probe_passes: bool = True
    gate: asyncio.Event | None = None  # closed: a hook waits for it

    async def look(self) -> Sight:
        return Sight(nodes=tuple(self.nodes), runs=tuple(self.runs))

    async def drain(self, ray_id: str, *, reason: str, deadline_s: float) -> None:  # noqa: ARG002 - of the protocol
        self._ask("drain", ray_id)
        self.nodes = [replace(each, draining=True) if each.id == ray_id else each for each in self.nodes]

    async def end_workers(self, run: str, *, attempt: int, ray_ids: frozenset[str]) -> int:
        self._ask("end", f"{run}/{attempt}")
        view = next(each for each in self.runs if each.run == run)
        return len(view.places_on(ray_ids))

    async def probe(self, ray_id: str, *, good: Sequence[str]) -> ProbeReading:
        self._ask("probe", f"{ray_id} {' '.join(good)}")
        return ProbeReading(passed=self.probe_passes, detail="measured")

    async def call_out(self, hook: str, *, node: str, case_id: str) -> str:  # noqa: ARG002 - of the protocol
        self._ask("hook", f"{hook} {node}")
        if self.gate is not None:
            await self.gate.wait()
        return "done"

    def run_moves(self, view: RunView) -> None:
        """Ray Train has restarted it."""
        self.runs = [view if each.run == view.run else each for each in self.runs]

    def acts(self) -> list[str]:
        """Since the last time."""
        found, self.asked = self.asked, []
        return found

    def _ask(self, act: str, of: str) -> None:
        self.asked.append(f"{act} {of}")
        if act in self.refuses:
            raise ActuationError(f"{act} refused")
