"""The nodes of a running cluster, in one form for Ray and Kubernetes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.documents import Path
from fleet.topology.labels import LabelNames, first_set

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")


@dataclass(frozen=True, slots=True)
class Machine:
    """One node: its name, its labels and their path in the answer, its GPUs."""

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
