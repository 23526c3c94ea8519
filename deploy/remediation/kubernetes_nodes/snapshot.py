"""The GPU nodes of a Kubernetes cluster, their marks and their GPU pods, as one reconcile observes them.  Pure."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

from api.schemas.quarantine import Evaluation, MemberReport, ProbeReport
from deploy.common.kubernetes_node_marks import (
    QUARANTINE,
    QuarantineMark,
    conditions_of,
    faults_of,
    labels_of,
    other_tool,
    own_mark,
    owner_of,
    taints_of,
)
from deploy.common.node_labels import KUBERNETES_POOL_LABELS, domains_of
from fleet.stock.node_marks import OWN_CONDITION, is_cordoned, is_ready
from fleet.topology.labels import GPU_RESOURCES, first_set

_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesNode:
    name: str
    uid: str
    resource_version: str
    pool: str
    domains: tuple[str, ...]
    ready: bool
    cordoned: bool
    taints: tuple[Mapping[str, Any], ...]
    mark: QuarantineMark | None  # our annotation
    healthy: tuple[str, str] | None  # status and message of our condition
    owner: str | None  # who took it out of service, if not Fleetwright
    tool: str | None  # another tool that relies on the cordon
    fault: str | None  # a condition of another tool

    @property
    def our_taints(self) -> list[str]:
        return [each.get("value", "") for each in self.taints if each["key"] == QUARANTINE]

    @property
    def is_ours(self) -> bool:
        return self.mark is not None or bool(self.our_taints)

    def is_quarantined_for(self, case_id: str, message: str) -> bool:
        """Return whether the node carries all marks of this case."""
        marked = self.mark is not None and self.mark.case == case_id and self.our_taints == [taint_value(case_id)]
        return marked and self.cordoned and self.healthy == ("False", message)

    @property
    def takes_work(self) -> bool:
        free = self.ready and not self.cordoned and not self.is_ours
        return free and self.owner is None and self.tool is None and self.fault is None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPod:
    namespace: str
    name: str
    uid: str
    node: str
    ending: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesSnapshot:
    nodes: Mapping[str, KubernetesNode]
    pods: Mapping[str, tuple[GpuPod, ...]]  # by node: GPU pods that an eviction moves
    blocked: Mapping[str, str] = field(default_factory=dict)  # by uid: why the last eviction was refused
    waiting: frozenset[str] = frozenset()  # uids of pods whose next eviction is not due yet

    def pods_on(self, node: str) -> tuple[GpuPod, ...]:
        return self.pods.get(node, ())

    def shares_a_group(self, one: str, other: str) -> bool:
        """Return whether a disruption budget counts both nodes; true if one of them is unknown."""
        first, second = self.nodes.get(one), self.nodes.get(other)
        if first is None or second is None:
            return True
        return first.pool == second.pool or bool({*first.domains} & {*second.domains})


def evaluation_of(
    snapshot: NodesSnapshot, *, out: AbstractSet[str], probed: Mapping[str, ProbeReport]
) -> Evaluation | None:
    """Report all nodes.  A node that another tool or person holds is absent, which reduces the budget."""
    if not snapshot.nodes:
        return None
    members = {
        node.name: MemberReport(
            pool=node.pool, domains=node.domains, absent=node.name not in out and not node.takes_work
        )
        for node in snapshot.nodes.values()
    }
    spares = Counter(
        node.pool
        for node in snapshot.nodes.values()
        if node.name not in out and node.takes_work and not snapshot.pods_on(node.name)
    )
    known = {name: probe for name, probe in probed.items() if name in members}
    return Evaluation(members=members, spares=dict(spares), probed=known)


def gpu_node(node: Mapping[str, Any]) -> KubernetesNode | None:
    """Return a node with GPUs, by its capacity or its labels, or with our mark: a bad node can lose its GPUs."""
    labels = labels_of(node)
    capacity = (node.get("status") or {}).get("capacity") or {}
    has_gpus = any(capacity.get(resource, "0") != "0" for resource in GPU_RESOURCES)
    if not has_gpus and first_set(labels, KUBERNETES_POOL_LABELS) is None and own_mark(node) is None:
        return None
    return node_of(node)


def node_of(node: Mapping[str, Any]) -> KubernetesNode:
    metadata, labels = node["metadata"], labels_of(node)
    healthy = next((each for each in conditions_of(node) if each["type"] == OWN_CONDITION), None)
    return KubernetesNode(
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        pool=first_set(labels, KUBERNETES_POOL_LABELS) or "default",
        domains=domains_of(labels),
        ready=is_ready(node),
        cordoned=is_cordoned(node),
        taints=tuple(taints_of(node)),
        mark=own_mark(node),
        healthy=(healthy["status"], healthy.get("message") or "") if healthy is not None else None,
        owner=owner_of(node),
        tool=other_tool(node),
        fault=next((f"{source}: {each['type']}" for source, each in faults_of(node)), None),
    )


def gpu_pods(pods: Iterable[Mapping[str, Any]], nodes: AbstractSet[str]) -> dict[str, tuple[GpuPod, ...]]:
    """Return the GPU pods on these nodes, without those that return to their node: of DaemonSets, and static pods."""
    found: dict[str, list[GpuPod]] = {}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node in nodes and _uses_gpus(pod["spec"]) and not _is_bound(pod["metadata"]):
            metadata = pod["metadata"]
            found.setdefault(node, []).append(
                GpuPod(
                    namespace=metadata["namespace"],
                    name=metadata["name"],
                    uid=metadata["uid"],
                    node=node,
                    ending=metadata.get("deletionTimestamp") is not None,
                )
            )
    return {node: tuple(sorted(each, key=str)) for node, each in found.items()}


def taint_value(case_id: str) -> str:
    """Return the case as the value of a taint, which has the form of a label value."""
    return case_id if _LABEL_VALUE.fullmatch(case_id) else hashlib.sha256(case_id.encode()).hexdigest()[:32]


def _uses_gpus(spec: Mapping[str, Any]) -> bool:
    """Return whether the pod has a whole GPU, a MIG slice or a device of a resource claim."""
    names = {
        name
        for container in (*spec.get("containers", ()), *(spec.get("initContainers") or ()))
        for amounts in (container.get("resources") or {}).values()
        if isinstance(amounts, Mapping)
        for name in amounts
    }
    return bool(spec.get("resourceClaims")) or any(
        name in GPU_RESOURCES or name.startswith("nvidia.com/mig-") for name in names
    )


def _is_bound(metadata: Mapping[str, Any]) -> bool:
    owners = metadata.get("ownerReferences") or ()
    is_static = "kubernetes.io/config.mirror" in (metadata.get("annotations") or {})
    return is_static or any(owner["kind"] in {"DaemonSet", "Node"} for owner in owners)
