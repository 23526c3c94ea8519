"""The Ray cluster that this process has joined, as a `ClusterInterface`.  Ray's calls block, some without a limit."""

from collections.abc import Mapping, Sequence
from typing import Final

from deploy.common.thread_calls import BlockingCalls
from deploy.remediation.cluster_interface import ClusterSnapshot, ProbeReading
from deploy.remediation.hooks import Hooks
from deploy.remediation.probe import probe_on_ray
from deploy.remediation.ray_nodes import RayNodes
from deploy.training.run_status import RunStatusReader

NODES: Final = "Ray's nodes"
MAX_NAMES: Final = 10_000  # of nodes that have left; they return under other ids


class RayCluster:
    """Implements `ClusterInterface` on Ray."""

    def __init__(
        self,
        *,
        nodes: RayNodes | None = None,
        runs: RunStatusReader | None = None,
        hooks: Hooks | None = None,
        calls: BlockingCalls | None = None,
    ) -> None:
        self._nodes, self._runs, self._hooks = nodes or RayNodes(), runs or RunStatusReader(), hooks or Hooks()
        self._calls = calls or BlockingCalls()
        self._names: dict[str, str] = {}

    async def observe(self) -> ClusterSnapshot:
        """Read nodes first: a run that moves in between is then on nodes that the snapshot has."""
        nodes = await self._calls.call(NODES, self._nodes.alive)
        self._names = _newest(self._names, {node.id: node.name for node in nodes})
        found = await self._calls.call("Ray's training runs", self._runs.all_runs)
        return ClusterSnapshot(nodes=nodes, runs=found.runs, silent=found.silent)

    def name_of(self, ray_id: str) -> str:
        """Return the node's name in the fleet, as last observed."""
        return self._names.get(ray_id, ray_id)

    async def drain(self, ray_id: str, *, reason: str, deadline_s: float) -> None:
        """Request Ray's PREEMPTION drain: Ray Train informs its ranks, Ray Serve moves its replicas."""
        await self._calls.call("Ray's drain", self._nodes.drain, ray_id, reason=reason, deadline_s=deadline_s)

    async def end_workers(self, run: str, *, attempt: int, ray_ids: frozenset[str]) -> int:
        """Kill the workers through the run's status actor, which holds the worker handles."""
        return await self._calls.call(
            f"training run {run!r}", self._runs.end_workers, run, attempt=attempt, node_ids=ray_ids
        )

    async def probe(self, ray_id: str, *, good: Sequence[str]) -> ProbeReading:
        """Probe over TCP between actors."""
        addresses = {node.id: node.address for node in await self._calls.call(NODES, self._nodes.alive)}
        present = [each for each in good if each in addresses]
        if ray_id not in addresses:
            return ProbeReading(passed=False, detail="the node has left the cluster")
        return await probe_on_ray(ray_id, good=present, address_of=addresses)

    async def run_hook(self, hook: str, *, node: str, case_id: str) -> str:
        return await self._hooks.run(hook, node=node, case_id=case_id)


def _newest(names: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    """Return the names of present nodes, and of the last ones that left."""
    left = [each for each in names.items() if each[0] not in present]
    return dict(left[-MAX_NAMES:]) | dict(present)
