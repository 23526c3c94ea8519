"""The Ray cluster that this process has joined, as a `ClusterInterface`.  Ray's calls block, some without a limit.

Ray's drain has no public interface:

    drain      `GcsClient.drain_node(id, PREEMPTION, message, deadline)`: Ray places no new work there at once; running
               work continues, whatever the deadline; the raylet ends once it is idle.  A repeated drain is accepted.
               The node returns only by a new raylet under another id.
    draining   `state.get_draining_nodes()`: id -> deadline, of nodes that have not ended

All private interfaces of Ray (2.60) that remediation uses are here; `tests/cluster/test_remediation.py` checks them.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ray
from ray._private.state import state as ray_state
from ray._raylet import GcsClient  # type: ignore[attr-defined] # compiled
from ray.core.generated import autoscaler_pb2

from deploy.common.errors import ActuationError, UnreachableError
from deploy.common.thread_calls import BlockingCalls
from deploy.remediation.actuator import ProbeReading
from deploy.remediation.cluster_interface import ClusterSnapshot, RayNode
from deploy.remediation.hooks import Hooks
from deploy.remediation.probe import probe_on_ray
from deploy.training.run_status import RunStatusReader
from fleet.topology import LabelNames
from fleet.topology.labels import first_set

NODES: Final = "Ray's nodes"
MAX_NAMES: Final = 10_000  # of nodes that have left; they return under other ids


class RayNodes:
    """The nodes of the cluster that `ray.init` has joined.  Calls block on Ray's control service: use a thread."""

    def __init__(self, labels: LabelNames | None = None) -> None:
        self._labels = labels or LabelNames()

    def alive(self) -> tuple[RayNode, ...]:
        """Return all nodes that are alive, named by their label, else by their id."""
        try:
            draining, available = ray_state.get_draining_nodes(), ray_state.available_resources_per_node()
            found = [node for node in ray.nodes() if node["Alive"]]
        except Exception as error:
            raise UnreachableError(f"Ray did not list its nodes: {error}") from error
        return tuple(self._node(node, draining, available) for node in found)

    def drain(self, node_id: str, *, reason: str, deadline_s: float) -> None:
        """Stop new work on a node.  Raise ActuationError if Ray refuses."""
        preemption = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        deadline_ms = int((time.time() + deadline_s) * 1000)
        try:
            client = GcsClient(address=ray.get_runtime_context().gcs_address)
            accepted, why_not = client.drain_node(node_id, preemption, reason, deadline_ms)
        except Exception as error:
            raise UnreachableError(f"Ray did not respond to a drain of {node_id}: {error}") from error
        if not accepted:
            raise ActuationError(f"Ray refused to drain {node_id}: {why_not}")

    def _node(
        self, node: Mapping[str, Any], draining: Mapping[str, int], available: Mapping[str, Mapping[str, float]]
    ) -> RayNode:
        labels: Mapping[str, str] = node.get("Labels") or {}
        return RayNode(
            id=node["NodeID"],
            name=first_set(labels, self._labels.node) or node["NodeID"],
            address=node.get("NodeManagerAddress", ""),
            labels=labels,
            resources=node.get("Resources") or {},
            available=available.get(node["NodeID"], {}),
            draining=node["NodeID"] in draining,
        )


class RayCluster:
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
        addresses = {node.id: node.address for node in await self._calls.call(NODES, self._nodes.alive)}
        present = [each for each in good if each in addresses]
        if ray_id not in addresses:
            return ProbeReading(passed=False, detail="the node has left the cluster")
        return await probe_on_ray(ray_id, good=present, address_of=addresses)

    async def run_hook(self, hook: str, *, node: str, case_id: str) -> str:
        return await self._hooks.run(hook, node=node, case_id=case_id)


def _newest(names: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    left = [each for each in names.items() if each[0] not in present]
    return dict(left[-MAX_NAMES:]) | dict(present)
