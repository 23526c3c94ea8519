"""The nodes of the Ray cluster that this process has joined, and Ray's drain, for which Ray has no public interface.

    drain      `GcsClient.drain_node(id, PREEMPTION, message, deadline)`: at once nothing new is placed there; what
               runs there runs on, whatever the deadline; once the node is idle its raylet ends by itself.  Asked for
               again, it is granted again.  There is no way back but to start the raylet anew, under another id.
    draining   `state.get_draining_nodes()`: id -> deadline, of nodes that have not ended

All that is private of Ray and that isolation rests on is here (2.60); `tests/cluster/test_healing.py` holds it to that.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import ray
from ray._private.state import state as ray_state
from ray._raylet import GcsClient  # type: ignore[attr-defined] # compiled
from ray.core.generated import autoscaler_pb2

from deploy.common.errors import ActuationError, UnreachableError
from fleet.topology import LabelNames
from fleet.topology.labels import first_set

HEAD_RESOURCE: Final = "node:__internal_head__"
POOL_LABELS: Final = ("fleetwright.io/pool", "ray.io/accelerator-type")
PROBATION_LABEL: Final = "fleetwright.io/probation"  # joined to be probed, not to work


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """A living node."""

    id: str
    name: str  # in the fleet
    address: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)
    available: Mapping[str, float] = field(default_factory=dict)
    draining: bool = False

    @property
    def is_head(self) -> bool:
        """Whether the cluster's own services are here: it is never drained."""
        return HEAD_RESOURCE in self.resources

    @property
    def pool(self) -> str:
        """What it is interchangeable within."""
        return first_set(self.labels, POOL_LABELS) or "default"

    @property
    def on_probation(self) -> bool:
        """Whether it takes no work but probes."""
        return bool(self.labels.get(PROBATION_LABEL))

    def has_room_for(self, resources: Mapping[str, float]) -> bool:
        """Whether one more worker of that size fits now."""
        return all(self.available.get(name, 0.0) >= amount for name, amount in resources.items())


class RayNodes:
    """Of the cluster that `ray.init` has joined.  Every call waits for Ray's control service: use a thread."""

    def __init__(self, labels: LabelNames | None = None) -> None:
        self._labels = labels or LabelNames()

    def alive(self) -> tuple[RayNode, ...]:
        """All that live; a node is called by its label, else by its id."""
        try:
            draining, available = ray_state.get_draining_nodes(), ray_state.available_resources_per_node()
            found = [node for node in ray.nodes() if node["Alive"]]
        except Exception as error:
            raise UnreachableError(f"Ray does not list its nodes: {error}") from error
        return tuple(self._node(node, draining, available) for node in found)

    def drain(self, node_id: str, *, reason: str, deadline_s: float) -> None:
        """Place nothing new there; ActuationError when Ray refuses."""
        preemption = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        deadline_ms = int((time.time() + deadline_s) * 1000)
        try:
            client = GcsClient(address=ray.get_runtime_context().gcs_address)
            accepted, why_not = client.drain_node(node_id, preemption, reason, deadline_ms)
        except Exception as error:
            raise UnreachableError(f"Ray does not answer a drain of {node_id}: {error}") from error
        if not accepted:
            raise ActuationError(f"Ray refuses to drain {node_id}: {why_not}")

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
