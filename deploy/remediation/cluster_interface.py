"""The Ray cluster as the remediation controller observes it, and the actions that it can take there.

`evaluation_of` gives the fleet as the quarantine policy takes it: members with pools and failure domains, and spares.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, Protocol

from api.schemas.quarantine import Evaluation, MemberReport, ProbeReport
from deploy.common.node_labels import POOL_LABELS, domains_of
from deploy.remediation.actuator import ProbeReading
from fleet.topology.labels import first_set
from fleetwright.ray_train.run_status import RunView

HEAD_RESOURCE: Final = "node:__internal_head__"
PROBE_ONLY_LABEL: Final = "fleetwright.io/probe-only"  # the node takes no work but probes


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
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
        return bool(self.labels.get(PROBE_ONLY_LABEL))

    def has_room_for(self, resources: Mapping[str, float]) -> bool:
        return all(self.available.get(name, 0.0) >= amount for name, amount in resources.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    nodes: tuple[RayNode, ...]  # alive
    runs: tuple[RunView, ...]  # training runs
    silent: frozenset[str] = frozenset()  # runs whose status actor exists and does not respond

    def nodes_named(self, name: str) -> tuple[RayNode, ...]:
        """Return the living Ray nodes of a node of the fleet: several if it has returned under another id."""
        return tuple(node for node in self.nodes if node.name == name)

    def run(self, name: str) -> RunView | None:
        return next((run for run in self.runs if run.run == name), None)


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


def evaluation_of(snapshot: ClusterSnapshot, *, out: AbstractSet[str], probed: Mapping[str, ProbeReport]) -> Evaluation:
    """Report all nodes but the head node, which is never drained because it runs the cluster's own services."""
    nodes = [node for node in snapshot.nodes if not node.is_head]
    members = {
        node.name: MemberReport(
            pool=node.pool,
            domains=domains_of(node.labels),
            absent=node.name not in out and (node.draining or node.is_probe_only),
        )
        for node in nodes
    }
    known = {name: probe for name, probe in probed.items() if name in members}
    return Evaluation(members=members, spares=spares(snapshot, nodes, out=out), probed=known)


def spares(snapshot: ClusterSnapshot, nodes: list[RayNode], *, out: AbstractSet[str]) -> dict[str, int]:
    """Return the spares per pool: nodes without a rank that have room for the largest worker of any run."""
    busy = {place.node_id for run in snapshot.runs for place in run.places}
    largest: Counter[str] = Counter()
    for run in snapshot.runs:
        largest |= Counter({name: amount for name, amount in run.worker_resources.items() if amount > 0})
    free = [
        node.pool
        for node in nodes
        if node.id not in busy
        and node.name not in out
        and not node.draining
        and not node.is_probe_only
        and node.has_room_for(largest)
    ]
    return dict(Counter(free))
