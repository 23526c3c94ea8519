"""llm-d: a Deployment or LeaderWorkerSet for each replica group with a HorizontalPodAutoscaler, and an InferencePool.

The autoscaler reads `wva_desired_replicas`, the gauge that llm-d's variant autoscaler and Fleetwright publish; its
annotations are those by which llm-d finds a variant.
"""

from collections.abc import Iterator
from typing import Final

from planner.export.groups import ReplicaGroup, WorkloadGroups
from planner.export.limits import OF_MANIFESTS, WEIGHTS
from planner.export.lws import API_VERSION as LWS_API_VERSION
from planner.export.lws import leader_worker_set
from planner.export.manifests import PORT, Export, ExportedFile, Manifest, deployment, engine_container, pod_spec, ready
from planner.export.provenance import PREFIX

NOT_EXPRESSED: Final = (
    WEIGHTS,
    "The endpoint picker NAME-epp, its HTTPRoute and the routing proxy of decode pods: llm-d's charts install them.",
    "Limits of the autoscaler: from 1 replica to twice those of the plan.",
    *OF_MANIFESTS,
)
PICKER_PORT: Final = 9002
MAX_OF_PLANNED: Final = 2  # highest number of replicas over the planned one
DEFAULT_COST: Final = "10.0"  # of a variant without a price, as in llm-d


def files(export: Export) -> Iterator[ExportedFile]:
    for workload in export.workloads:
        yield export.yaml_file(workload, _manifests(export, workload))


def _manifests(export: Export, workload: WorkloadGroups) -> Iterator[Manifest]:
    pool = {"llm-d.ai/inference-serving": "true", "llm-d.ai/model": workload.name}
    for group in workload.groups:
        yield _replicas(export, group, pool)
        yield _autoscaler(export, group)
    yield {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": export.metadata(workload.name),
        "spec": {
            "selector": {"matchLabels": pool},
            "targetPorts": [{"number": PORT}],
            "endpointPickerRef": {"name": f"{workload.name}-epp", "port": {"number": PICKER_PORT}},
        },
    }


def _replicas(export: Export, group: ReplicaGroup, pool: dict[str, str]) -> Manifest:
    """Pods without a role label serve whole requests."""
    labels = pool if group.role == "both" else {**pool, "llm-d.ai/role": group.role}
    if group.nodes_per_replica > 1:
        return leader_worker_set(export, group, labels=labels)
    server = ready(engine_container(export, group, name="modelserver"))
    spec = pod_spec(export, group, [server])
    return deployment(export, group, spec, labels=labels, selector={f"{PREFIX}/group": group.name})


def _autoscaler(export: Export, group: ReplicaGroup) -> Manifest:
    several = group.nodes_per_replica > 1
    target = {
        "apiVersion": LWS_API_VERSION if several else "apps/v1",
        "kind": "LeaderWorkerSet" if several else "Deployment",
        "name": group.name,
    }
    metadata = export.metadata(group.name, group=group)
    metadata["annotations"] |= {
        "llm-d.ai/managed": "true",
        "llm-d.ai/model-id": group.settings.checkpoint,
        "llm-d.ai/variant-cost": DEFAULT_COST if group.usd_per_h is None else f"{group.usd_per_h:g}",
    }
    labels = {"variant_name": group.name, "exported_namespace": export.settings.namespace}
    metric = {"name": "wva_desired_replicas", "selector": {"matchLabels": labels}}
    external = {"metric": metric, "target": {"type": "AverageValue", "averageValue": "1"}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": 1,
            "maxReplicas": group.count * MAX_OF_PLANNED,
            "metrics": [{"type": "External", "external": external}],
        },
    }
