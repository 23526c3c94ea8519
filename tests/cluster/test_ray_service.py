"""Targets that follow the active RayCluster of a RayService, under the real KubeRay operator.

No Ray runs in the pods, so no cluster ever serves, and the operator never makes one active.  The test writes the status
that the operator would write; the operator creates the clusters, and scales their pods.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes import client

from api.schemas.applications import RayServiceGroups
from deploy.actuators.base import Step
from deploy.actuators.ray_cluster.service import RayServiceActuator
from deploy.common.errors import UnreachableError
from deploy.common.kubernetes_client import Kubernetes, KubernetesAccess, kubernetes_server
from tests.testbed.gpu_nodes import GpuNodes
from tests.testbed.kube_api import KubeApi
from tests.testbed.manifests import ray_cluster_of_groups
from tests.testbed.waiting import wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.anyio, pytest.mark.usefixtures("kuberay")]
H100 = "H100-SXM"


@pytest.fixture
async def kube(kube_api: KubeApi) -> AsyncIterator[Kubernetes]:
    async with kubernetes_server(KubernetesAccess(kubeconfig=kube_api.kubeconfig_path)) as server:
        yield server


async def test_the_switch_of_the_active_cluster_is_followed(
    kube: Kubernetes, kube_client: client.ApiClient, kube_namespace: str, gpu_nodes: GpuNodes
) -> None:
    gpu_nodes.add(2)
    custom = client.CustomObjectsApi(kube_client)
    services, clusters = (("ray.io", "v1", kube_namespace, plural) for plural in ("rayservices", "rayclusters"))
    config = ray_cluster_of_groups("chat", kube_namespace, groups={"h100": 1}, gpus=1, nodes=gpu_nodes.selector)["spec"]
    manifest = {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": "chat", "namespace": kube_namespace},
        "spec": {"serveConfigV2": "applications: []", "rayClusterConfig": config},
    }
    custom.create_namespaced_custom_object(*services, manifest)

    def created(*before: str) -> str:
        names = wait_for(
            lambda: {each["metadata"]["name"] for each in custom.list_namespaced_custom_object(*clusters)["items"]},
            lambda found: len(found - set(before)) == 1,
            what="the operator's next RayCluster",
        )
        return str((names - set(before)).pop())

    def activate(cluster: str) -> None:
        status: dict[str, Any] = {
            "activeServiceStatus": {"rayClusterName": cluster},
            "pendingServiceStatus": {"rayClusterName": None},
        }
        custom.patch_namespaced_custom_object_status(*services, "chat", {"status": status})

    def replicas(cluster: str) -> int:
        found = custom.get_namespaced_custom_object(*clusters, cluster)
        return int(found["spec"]["workerGroupSpecs"][0]["replicas"])

    groups = RayServiceGroups(namespace=kube_namespace, service="chat", groups={H100: "h100"})
    first = created()
    with pytest.raises(UnreachableError, match="has no active RayCluster yet"):
        await RayServiceActuator(kube, groups).observe()
    activate(first)
    driver = RayServiceActuator(kube, groups)
    assert (await driver.observe()).requested == {H100: 1}
    await driver.apply(Step(part=H100, replicas_before=1, replicas_after=3))
    assert replicas(first) == 3

    config["headGroupSpec"]["rayStartParams"] = {"num-cpus": "2"}  # another cluster, not only another count
    custom.patch_namespaced_custom_object(*services, "chat", {"spec": {"rayClusterConfig": config}})
    second = created(first)
    assert replicas(first) == 3, "the operator leaves the count of the active cluster"
    activate(second)
    driver = RayServiceActuator(kube, groups)
    assert (await driver.observe()).requested == {H100: 1}, "an upgrade starts with the counts of the RayService"
    await driver.apply(Step(part=H100, replicas_before=1, replicas_after=2))
    assert replicas(second) == 2
