"""The real KubeRay operator scales a RayCluster, and says what GPUs it has got."""

from typing import Any

import pytest
from kubernetes import client

from tests.testbed.gpu_nodes import GPU, GpuNodes
from tests.testbed.kube_api import KubeApi
from tests.testbed.kuberay import KubeRay
from tests.testbed.manifests import ray_cluster
from tests.testbed.waiting import wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("kuberay")]


def test_the_operator_is_the_pinned_one(kuberay: KubeRay, kube_client: client.ApiClient) -> None:
    definitions = client.ApiextensionsV1Api(kube_client).list_custom_resource_definition().items
    served = {crd.metadata.name for crd in definitions if crd.spec.group == "ray.io"}

    assert kuberay.version == "v1.6.1"
    assert served >= {"rayclusters.ray.io", "rayjobs.ray.io", "rayservices.ray.io"}


def test_a_ray_cluster_grows_from_three_to_six_workers_and_shrinks_again(
    kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str, gpu_nodes: GpuNodes
) -> None:
    gpu_nodes.add(6)

    def resize(workers: int) -> None:
        kube_api.apply(ray_cluster("llm", kube_namespace, workers=workers, gpus=8, nodes=gpu_nodes.selector))

    resize(3)
    first = _wait_for_workers(kube_client, kube_namespace, 3)
    resize(6)
    grown = _wait_for_workers(kube_client, kube_namespace, 6)
    resize(2)
    shrunk = _wait_for_workers(kube_client, kube_namespace, 2)

    assert first < grown  # nothing that ran was replaced
    assert shrunk < grown


def test_workers_without_room_leave_the_cluster_unready(
    kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str, gpu_nodes: GpuNodes
) -> None:
    gpu_nodes.add(2)
    kube_api.apply(ray_cluster("llm", kube_namespace, workers=3, gpus=8, nodes=gpu_nodes.selector))

    status = wait_for(
        lambda: _status(kube_client, kube_namespace),
        lambda seen: seen.get("readyWorkerReplicas") == 2,
        what="two of three workers ready",
    )

    assert status["desiredWorkerReplicas"] == 3
    assert status["desiredGPU"] == "24"
    assert status.get("state") != "ready"


def _wait_for_workers(api: client.ApiClient, namespace: str, workers: int) -> set[str]:
    """Wait until the cluster has exactly so many workers, all of them ready, and answer the names of their pods."""

    def settled(status: dict[str, Any]) -> bool:
        counts = {
            status.get(key) for key in ("desiredWorkerReplicas", "availableWorkerReplicas", "readyWorkerReplicas")
        }
        return counts == {workers} and status.get("state") == "ready"

    status = wait_for(lambda: _status(api, namespace), settled, what=f"RayCluster with {workers} ready workers")
    assert status["desiredGPU"] == str(8 * workers)
    pods = client.CoreV1Api(api).list_namespaced_pod(namespace, label_selector="ray.io/node-type=worker").items
    running = {
        pod.metadata.name for pod in pods if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp
    }
    assert len(running) == workers
    assert all(pod.spec.containers[0].resources.limits[GPU] == "8" for pod in pods)
    return running


def _status(api: client.ApiClient, namespace: str) -> dict[str, Any]:
    found = client.CustomObjectsApi(api).get_namespaced_custom_object("ray.io", "v1", namespace, "rayclusters", "llm")
    return dict(found.get("status") or {})
