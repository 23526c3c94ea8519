"""Which pods belong to a target: a plan replaces these, so their GPUs count as available.  Pure.

A pod belongs to a target by the label `fleetwright.io/target`, or by what its controller writes on every pod that it
creates.  Pods of Ray Serve applications, of training runs and of Dynamo's scaling adapters need the label.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from api.schemas.applications import KubernetesScale, RayClusterGroups, RayServiceGroups, ScaledObject
from api.schemas.targets import Target
from deploy.actuators.kubernetes_scale.count_field import count_field
from deploy.actuators.kubernetes_scale.replicas import SET_NAME_LABEL
from deploy.actuators.ray_cluster.objects import CLUSTER_LABEL

TARGET_LABEL: Final = "fleetwright.io/target"
TEMPLATE_HASH_LABEL: Final = "pod-template-hash"

Json = Mapping[str, Any]
PodName = tuple[str, str]


def target_pods(
    pods: Iterable[Json], targets: Iterable[Target], *, ray_clusters: Mapping[str, Iterable[str]] | None = None
) -> frozenset[PodName]:
    """Return namespace and name of each pod of a target; `ray_clusters` has those of targets with a RayService."""
    names = {target.name for target in targets}
    clusters: set[tuple[str, str]] = set()
    objects: dict[str, list[ScaledObject]] = {}
    for target in targets:
        match target.spec.application:
            case RayClusterGroups(namespace=namespace, cluster=cluster):
                clusters.add((namespace, cluster))
            case RayServiceGroups(namespace=namespace):
                clusters |= {(namespace, cluster) for cluster in (ray_clusters or {}).get(target.name, ())}
            case KubernetesScale(namespace=namespace) as scale:
                objects.setdefault(namespace, []).extend(scale.objects.values())
    return frozenset(
        (namespace, pod["metadata"]["name"])
        for pod in pods
        for namespace in (pod["metadata"].get("namespace", ""),)
        if _labels(pod).get(TARGET_LABEL) in names
        or (namespace, _labels(pod).get(CLUSTER_LABEL, "")) in clusters
        or any(_is_of(pod, scaled) for scaled in objects.get(namespace, ()))
    )


def _is_of(pod: Json, scaled: ScaledObject) -> bool:
    labels = _labels(pod)
    if scaled.kind == "LeaderWorkerSet" and labels.get(SET_NAME_LABEL) == scaled.name:
        return True
    if (counted := count_field(scaled)) is not None:
        return counted.pod_labels.items() <= labels.items()
    for owner in pod["metadata"].get("ownerReferences") or ():
        if (owner["kind"], owner["name"]) == (scaled.kind, scaled.name):
            return True
        created = f"{scaled.name}-{labels.get(TEMPLATE_HASH_LABEL)}"  # the ReplicaSet of a Deployment
        if (scaled.kind, owner["kind"], owner["name"]) == ("Deployment", "ReplicaSet", created):
            return True
    return False


def _labels(pod: Json) -> Mapping[str, str]:
    return pod["metadata"].get("labels") or {}
