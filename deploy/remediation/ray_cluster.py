"""The healer's world on a Ray cluster that this process has joined.  Ray's calls wait, some without end."""

from collections.abc import Mapping, Sequence
from typing import Final

from deploy.common.thread_calls import BlockingCalls
from deploy.remediation.cluster_interface import ProbeReading, Sight
from deploy.remediation.hooks import Hooks
from deploy.remediation.probe import probe_on_ray
from deploy.remediation.ray_nodes import RayNodes
from deploy.training.run_status import Boards

NODES: Final = "Ray's nodes"
MAX_NAMES: Final = 10_000  # of nodes that have left, which come back under other ids


class RayWorld:
    """A `World`."""

    def __init__(
        self,
        *,
        nodes: RayNodes | None = None,
        boards: Boards | None = None,
        hooks: Hooks | None = None,
        calls: BlockingCalls | None = None,
    ) -> None:
        self._nodes, self._boards, self._hooks = nodes or RayNodes(), boards or Boards(), hooks or Hooks()
        self._calls = calls or BlockingCalls()
        self._names: dict[str, str] = {}

    async def look(self) -> Sight:
        """Nodes first: a run that moved in between is seen where it is, on nodes that are known."""
        nodes = await self._calls.call(NODES, self._nodes.alive)
        self._names = _newest(self._names, {node.id: node.name for node in nodes})
        seen = await self._calls.call("Ray's training runs", self._boards.look)
        return Sight(nodes=nodes, runs=seen.runs, silent=seen.silent)

    def name_of(self, ray_id: str) -> str:
        """What a node is called in the fleet, as last seen."""
        return self._names.get(ray_id, ray_id)

    async def drain(self, ray_id: str, *, reason: str, deadline_s: float) -> None:
        """Ray's PREEMPTION drain: Ray Train tells its ranks, Ray Serve moves its replicas."""
        await self._calls.call("Ray's drain", self._nodes.drain, ray_id, reason=reason, deadline_s=deadline_s)

    async def end_workers(self, run: str, *, attempt: int, ray_ids: frozenset[str]) -> int:
        """By the run's own board, which holds the handles."""
        return await self._calls.call(
            f"training run {run!r}", self._boards.end_workers, run, attempt=attempt, node_ids=ray_ids
        )

    async def probe(self, ray_id: str, *, good: Sequence[str]) -> ProbeReading:
        """Over TCP between actors."""
        addresses = {node.id: node.address for node in await self._calls.call(NODES, self._nodes.alive)}
        present = [each for each in good if each in addresses]
        if ray_id not in addresses:
            return ProbeReading(passed=False, detail="it has left the cluster")
        return await probe_on_ray(ray_id, good=present, address_of=addresses)

    async def call_out(self, hook: str, *, node: str, case_id: str) -> str:
        """The operator's command."""
        return await self._hooks.call(hook, node=node, case_id=case_id)


def _newest(names: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    """Those that are there, and of those that have left the last to be seen."""
    left = [each for each in names.items() if each[0] not in present]
    return dict(left[-MAX_NAMES:]) | dict(present)
