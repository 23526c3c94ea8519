"""AIBrix: a Deployment for each group of whole replicas, a StormService for prefill and decode, and PodAutoscalers.

A PodAutoscaler reads the wanted count from an HTTP endpoint (`metricSourceType: domain`), which is Fleetwright instead
of AIBrix's own optimizer.  AIBrix divides the value by the target of 1.
"""

from collections.abc import Iterator
from typing import Final

from fleet.documents import Violation
from planner.export.groups import ReplicaGroup, WorkloadGroups
from planner.export.limits import OF_MANIFESTS, WEIGHTS
from planner.export.manifests import PORT, Export, ExportedFile, Manifest, deployment, engine_container, pod_spec, ready
from planner.export.provenance import PREFIX

NOT_EXPRESSED: Final = (
    WEIGHTS,
    "Several prefill or decode options of one workload: AIBrix's router knows only the first of each.",
    "Limits of the autoscaler: from 1 replica to twice those of the plan.",
    "Autoscaling of prefill and decode roles: their counts are those of the plan.",
    "Replicas over several nodes: export them with --to lws.",
    *OF_MANIFESTS,
)
MAX_OF_PLANNED: Final = 2  # highest number of replicas over the planned one
MODEL_LABEL: Final = "model.aibrix.ai/name"


def violations(export: Export) -> Iterator[Violation]:
    for group in (group for workload in export.workloads for group in workload.groups):
        if group.nodes_per_replica > 1:
            yield ("to",), f"aibrix: a replica of {group.option} takes {group.nodes_per_replica} nodes; use lws for it"


def files(export: Export) -> Iterator[ExportedFile]:
    for workload in export.workloads:
        yield export.yaml_file(workload, _manifests(export, workload))


def _manifests(export: Export, workload: WorkloadGroups) -> Iterator[Manifest]:
    for group in workload.whole:
        spec = pod_spec(export, group, [_server(export, workload, group)])
        selector = {f"{PREFIX}/group": group.name}
        yield deployment(export, group, spec, labels=_labels(export, workload), selector=selector)
        yield _autoscaler(export, group)
    if workload.prefill:
        yield _storm_service(export, workload)


def _labels(export: Export, workload: WorkloadGroups) -> dict[str, str]:
    """The labels by which AIBrix's gateway finds the pods of a model."""
    return {
        MODEL_LABEL: workload.name,
        "model.aibrix.ai/port": str(PORT),
        "model.aibrix.ai/engine": str(export.settings.engine),
    }


def _server(export: Export, workload: WorkloadGroups, group: ReplicaGroup) -> Manifest:
    """The served name is that of the label, in which a slash is not allowed."""
    return ready(engine_container(export, group, name="llm-engine", args=["--served-model-name", workload.name]))


def _autoscaler(export: Export, group: ReplicaGroup) -> Manifest:
    source = {
        "metricSourceType": "domain",
        "protocolType": "http",
        "endpoint": export.settings.counts_address,
        "path": f"/metrics/{export.settings.namespace}/{group.name}",
        "targetMetric": "vllm:deployment_replicas",
        "targetValue": "1",
    }
    return {
        "apiVersion": "autoscaling.aibrix.ai/v1alpha1",
        "kind": "PodAutoscaler",
        "metadata": export.metadata(group.name, group=group),
        "spec": {
            "scalingStrategy": "KPA",
            "minReplicas": 1,
            "maxReplicas": group.count * MAX_OF_PLANNED,
            "metricsSources": [source],
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": group.name},
        },
    }


def _storm_service(export: Export, workload: WorkloadGroups) -> Manifest:
    name = workload.split_name
    return {
        "apiVersion": "orchestration.aibrix.ai/v1alpha1",
        "kind": "StormService",
        "metadata": export.metadata(name),
        "spec": {
            "replicas": 1,
            "stateful": True,
            "updateStrategy": {"type": "InPlaceUpdate"},
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "roles": [
                        _role(export, workload, group, f"{group.role}-{number}" if number > 1 else group.role)
                        for groups in (workload.prefill, workload.decode)
                        for number, group in enumerate(groups, start=1)
                    ]
                },
            },
        },
    }


def _role(export: Export, workload: WorkloadGroups, group: ReplicaGroup, name: str) -> Manifest:
    metadata = export.metadata(group.name, group=group)
    return {
        "name": name,
        "replicas": group.count,
        "stateful": True,
        "template": {
            "metadata": {"labels": _labels(export, workload), "annotations": metadata["annotations"]},
            "spec": pod_spec(export, group, [_server(export, workload, group)]),
        },
    }
