"""The nodes of the joined Ray cluster, and Ray's drain, which has no public interface.

    drain      `GcsClient.drain_node(id, PREEMPTION, message, deadline)`: Ray places no new work there at once; running
               work continues, whatever the deadline; the raylet ends once it is idle.  A repeated drain is accepted.
               The node returns only by a new raylet under another id.
    draining   `state.get_draining_nodes()`: id -> deadline, of nodes that have not ended

All private interfaces of Ray (2.60) that remediation uses are here; `tests/cluster/test_remediation.py` checks them.
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
PROBE_ONLY_LABEL: Final = "fleetwright.io/probe-only"  # the node takes no work but probes


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """A node that is alive."""

    id: str
    name: str  # its name in the fleet
    address: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)
    available: Mapping[str, float] = field(default_factory=dict)
    draining: bool = False

    @property
    def is_head(self) -> bool:
        """Return whether the node runs the cluster's own services; such a node is never drained."""
        return HEAD_RESOURCE in self.resources

    @property
    def pool(self) -> str:
        """Return the pool: nodes that can replace each other."""
        return first_set(self.labels, POOL_LABELS) or "default"

    @property
    def is_probe_only(self) -> bool:
        """Return whether the node takes no work but probes."""
        return bool(self.labels.get(PROBE_ONLY_LABEL))

    def has_room_for(self, resources: Mapping[str, float]) -> bool:
        """Return whether the node has free resources for one more worker of this size."""
        return all(self.available.get(name, 0.0) >= amount for name, amount in resources.items())


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
