"""Builds manifests of workloads that request GPUs; the image is only a name, because no pod runs anything."""

from collections.abc import Mapping
from typing import Any, Final

from tests.testbed.gpu_nodes import GPU

IMAGE: Final = "registry.invalid/worker:1"


def deployment(name: str, namespace: str, *, gpus: int, replicas: int, nodes: Mapping[str, str]) -> dict[str, Any]:
    """Build a Deployment of `replicas` pods with `gpus` GPUs each, for `nodes` only."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(gpus=gpus, nodes=nodes)},
        },
    }


def stateful_set(name: str, namespace: str, *, gpus: int, replicas: int, nodes: Mapping[str, str]) -> dict[str, Any]:
    """Build a StatefulSet of `replicas` pods with `gpus` GPUs each, for `nodes` only."""
    manifest = deployment(name, namespace, gpus=gpus, replicas=replicas, nodes=nodes)
    return manifest | {"kind": "StatefulSet", "spec": manifest["spec"] | {"serviceName": name}}


def kueue_queue(name: str, namespace: str, *, gpus: int, nodes: Mapping[str, str]) -> list[dict[str, Any]]:
    """Build the objects of the Kueue queue `name` in `namespace`, which admits `gpus` GPUs onto `nodes`."""
    quota = {GPU: gpus, "cpu": "1k", "memory": "64Ti"}  # of which only the GPUs are scarce
    resources = [{"name": resource, "nominalQuota": amount} for resource, amount in quota.items()]
    group = {"coveredResources": list(quota), "flavors": [{"name": name, "resources": resources}]}
    kueue = "kueue.x-k8s.io/v1beta2"
    everywhere, here = {"name": name}, {"name": name, "namespace": namespace}
    only_here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    limits = {"namespaceSelector": only_here, "resourceGroups": [group]}
    return [
        {"apiVersion": kueue, "kind": "ResourceFlavor", "metadata": everywhere, "spec": {"nodeLabels": dict(nodes)}},
        {"apiVersion": kueue, "kind": "ClusterQueue", "metadata": everywhere, "spec": limits},
        {"apiVersion": kueue, "kind": "LocalQueue", "metadata": here, "spec": {"clusterQueue": name}},
    ]


def queued_job(name: str, namespace: str, *, gpus: int, queue: str) -> dict[str, Any]:
    """Build a suspended Job of one pod with `gpus` GPUs that waits in the Kueue queue `queue`."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {
            "suspend": True,
            "template": {"spec": pod_spec(gpus=gpus, nodes={}) | {"restartPolicy": "Never"}},
        },
    }


def ray_cluster(name: str, namespace: str, *, workers: int, gpus: int, nodes: Mapping[str, str]) -> dict[str, Any]:
    """Build a RayCluster with a head and one group of `workers` workers with `gpus` GPUs each."""
    return ray_cluster_of_groups(name, namespace, groups={"gpu": workers}, gpus=gpus, nodes=nodes)


def ray_cluster_of_groups(
    name: str, namespace: str, *, groups: Mapping[str, int], gpus: int, nodes: Mapping[str, str]
) -> dict[str, Any]:
    """Build a RayCluster with a head and `groups`: the number of workers with `gpus` GPUs each, by name."""
    specs = [
        {
            "groupName": group,
            "replicas": workers,
            "minReplicas": 0,
            "maxReplicas": 64,
            "rayStartParams": {},
            "template": {"spec": pod_spec(gpus=gpus, nodes=nodes)},
        }
        for group, workers in groups.items()
    ]
    head = {"rayStartParams": {}, "template": {"spec": pod_spec(gpus=0, nodes=nodes)}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"headGroupSpec": head, "workerGroupSpecs": specs},
    }


def pod_spec(*, gpus: int, nodes: Mapping[str, str]) -> dict[str, Any]:
    """Build a pod specification with one container, for `nodes` only."""
    size = {"cpu": "4", "memory": "16Gi"} | ({GPU: str(gpus)} if gpus else {})
    container = {"name": "main", "image": IMAGE, "resources": {"requests": size, "limits": size}}
    return {"nodeSelector": dict(nodes), "containers": [container]}
