"""Reads the nodes of a running cluster and their labels, in one form for Ray and Kubernetes.

`LabelNames` has the label names of each level of the topology; per level the first label that is set takes precedence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.documents import Frozen, Path


class LabelNames(Frozen):
    """Fleetwright's labels first, then those of Kubernetes, Ray, topograph and the GPU vendors."""

    node: tuple[str, ...] = ("fleetwright.io/node",)  # Ray only, where nodes have no own name
    site: tuple[str, ...] = ("fleetwright.io/site",)  # else the zone, else the region
    region: tuple[str, ...] = ("topology.kubernetes.io/region", "ray.io/availability-region")
    zone: tuple[str, ...] = ("topology.kubernetes.io/zone", "ray.io/availability-zone")

    ups: tuple[str, ...] = ("fleetwright.io/ups",)
    pdu: tuple[str, ...] = ("fleetwright.io/pdu", "fleetwright.io/power-domain", "cluster/power-domain")
    row: tuple[str, ...] = ("fleetwright.io/row", "cluster/row")
    rack: tuple[str, ...] = ("fleetwright.io/rack", "cluster/rack")

    leaf: tuple[str, ...] = (
        "fleetwright.io/leaf",
        "fabric.topograph.run/tier-0",
        "network.topology.nvidia.com/leaf",
    )
    leaf_of_rail: str = "fleetwright.io/leaf-rail-"  # followed by the rail: leaf-rail-0, leaf-rail-1, ...
    spine: tuple[str, ...] = (
        "fleetwright.io/spine",
        "fabric.topograph.run/tier-1",
        "network.topology.nvidia.com/spine",
    )
    core: tuple[str, ...] = (
        "fleetwright.io/core",
        "fabric.topograph.run/tier-2",
        "network.topology.nvidia.com/core",
    )
    scale_up: tuple[str, ...] = (
        "fleetwright.io/scale-up",
        "accelerator.topograph.run/domain",
        "network.topology.nvidia.com/accelerator",
        "nvidia.com/gpu.clique",
    )
    gpu: tuple[str, ...] = (
        "fleetwright.io/gpu",
        "nvidia.com/gpu.product",
        "amd.com/gpu.product-name",
        "ray.io/accelerator-type",
        "cloud.google.com/gke-accelerator",
    )
    pool: tuple[str, ...] = (
        "fleetwright.io/pool",
        "karpenter.sh/nodepool",
        "cloud.google.com/gke-nodepool",
        "eks.amazonaws.com/nodegroup",
        "kubernetes.azure.com/agentpool",
    )


def first_set(labels: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """The value of the first of these labels that is set and not empty."""
    return next((labels[name] for name in names if labels.get(name)), None)


GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")


@dataclass(frozen=True, slots=True)
class Machine:
    """One node: its name, its labels and their path in the source, its GPUs."""

    name: str
    labels: Mapping[str, str]
    gpus: int
    gpu_label: str | None  # the cluster's name for the GPU type
    path: Path


def ray_machines(nodes: Sequence[Mapping[str, Any]], names: LabelNames) -> Iterator[Machine]:
    """The live nodes of `ray.nodes()`, which also lists dead ones."""
    for index, node in enumerate(nodes):
        if not node.get("Alive", True):
            continue
        labels: Mapping[str, str] = node.get("Labels") or {}
        resources: Mapping[str, float] = node.get("Resources") or {}
        typed = next((name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")), None)
        yield Machine(
            name=first_set(labels, names.node) or node["NodeID"],
            labels=labels,
            gpus=int(resources.get("GPU", 0)),
            gpu_label=first_set(labels, names.gpu) or typed,
            path=("nodes", index, "Labels"),
        )


def kubernetes_machines(nodes: Sequence[Mapping[str, Any]], names: LabelNames) -> Iterator[Machine]:
    """All Node objects, including cordoned and unready ones."""
    for index, node in enumerate(nodes):
        metadata = node["metadata"]
        labels: Mapping[str, str] = metadata.get("labels") or {}
        capacity: Mapping[str, str] = (node.get("status") or {}).get("capacity") or {}
        yield Machine(
            name=metadata["name"],
            labels=labels,
            gpus=sum(int(capacity.get(resource, 0)) for resource in GPU_RESOURCES),
            gpu_label=first_set(labels, names.gpu),
            path=("nodes", index, "metadata", "labels"),
        )
