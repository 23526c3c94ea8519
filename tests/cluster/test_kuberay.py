"""Tests that the real KubeRay operator scales a RayCluster and reports its GPUs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes import client
from kubernetes.dynamic.exceptions import ConflictError

from api.schemas.applications import RayClusterGroups
from api.schemas.targets import Phase, TargetStatus
from deploy.actuators.ray_cluster.actuator import ray_cluster_actuators
from deploy.actuators.registry import Actuators
from deploy.common.kubernetes_client import KubernetesAccess, kubernetes_server
from deploy.controller.controller import Controller
from tests.deploy.controller.harness import Harness, harness_of
from tests.helm.chart import one, render
from tests.testbed.gpu_nodes import GPU, GpuNodes
from tests.testbed.helm import Helm
from tests.testbed.kube_api import KubeApi
from tests.testbed.kuberay import KubeRay
from tests.testbed.manifests import ray_cluster, ray_cluster_of_groups
from tests.testbed.service import RunningService
from tests.testbed.waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("kuberay")]

H100, L4 = "H100-SXM", "L4"  # names of the catalogue
OLD, NEW = {H100: 3, L4: 0}, {H100: 1, L4: 2}


def test_the_operator_is_of_the_pinned_version(kuberay: KubeRay, kube_client: client.ApiClient) -> None:
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

    assert first < grown  # no running worker was replaced
    assert shrunk < grown


def test_unschedulable_workers_leave_the_cluster_unready(
    kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str, gpu_nodes: GpuNodes
) -> None:
    gpu_nodes.add(2)
    kube_api.apply(ray_cluster("llm", kube_namespace, workers=3, gpus=8, nodes=gpu_nodes.selector))

    status = wait_for(
        lambda: _status(kube_client, kube_namespace),
        lambda status: status.get("readyWorkerReplicas") == 2,
        what="two of three workers ready",
    )

    assert status["desiredWorkerReplicas"] == 3
    assert status["desiredGPU"] == "24"
    assert status.get("state") != "ready"


@pytest.fixture
async def harness(sqlite_service: RunningService) -> AsyncIterator[Harness]:
    async with harness_of(sqlite_service) as harness:
        yield harness


@pytest.fixture
def access(helm3: Helm, kube_api: KubeApi, kube_namespace: str) -> KubernetesAccess:
    """Return the access that the chart gives to the controller, and no more."""
    objects = render(helm3, "--namespace", kube_namespace, "--set", "controller.kubernetes.enabled=true")
    account = one(objects, "ServiceAccount", "-controller")
    for item in (account, one(objects, "Role"), one(objects, "RoleBinding")):
        kube_api.apply(item)
    name = account["metadata"]["name"]
    return KubernetesAccess(kubeconfig=kube_api.service_account_kubeconfig(namespace=kube_namespace, name=name))


@pytest.fixture
def two_groups(kube_client: client.ApiClient, kube_namespace: str, gpu_nodes: GpuNodes) -> dict[str, Any]:
    """Return the manifest of a running RayCluster with room for five workers."""
    gpu_nodes.add(5)
    groups = {"h100": 3, "l4": 0}
    manifest = ray_cluster_of_groups("llm", kube_namespace, groups=groups, gpus=8, nodes=gpu_nodes.selector)
    rayclusters = ("ray.io", "v1", kube_namespace, "rayclusters")
    client.CustomObjectsApi(kube_client).create_namespaced_custom_object(*rayclusters, manifest)
    _wait_for_workers(kube_client, kube_namespace, 3)
    return manifest


@pytest.mark.anyio
async def test_the_controller_scales_worker_groups_until_another_manager_applies_them(
    harness: Harness,
    access: KubernetesAccess,
    kube_api: KubeApi,
    kube_client: client.ApiClient,
    two_groups: dict[str, Any],
) -> None:
    manifest, namespace = two_groups, two_groups["metadata"]["namespace"]
    described = {"namespace": namespace, "cluster": "llm", "groups": {H100: "h100", L4: "l4"}}
    plan_id = await harness.plan(NEW)
    await harness.register_real("llm", RayClusterGroups.model_validate(described), plan_id=plan_id)

    async with kubernetes_server(access) as kube:
        controller = harness.controller(actuators=Actuators(ray_cluster=ray_cluster_actuators(kube)))
        for before, planned in ((OLD, NEW), (NEW, OLD)):
            await harness.change("llm", plan_id=await harness.plan(planned))
            statuses = await _rounds_until(harness, controller, Phase.APPLIED)
            assert statuses[-1].applied == planned
            for gpu in planned:
                assert min(status.applied[gpu] for status in statuses if status.applied) == min(
                    before[gpu], planned[gpu]
                )
        _wait_for_workers(kube_client, namespace, 3)

        with pytest.raises(ConflictError, match=r"conflict with \W+fleetwright\W+ using .*: \.spec\.workerGroupSpecs"):
            kube_api.apply(manifest, field_manager="gitops")
        manifest["spec"]["workerGroupSpecs"] = _groups(kube_client, namespace)
        kube_api.apply(manifest, field_manager="gitops")
        await harness.change("llm", plan_id=plan_id)
        failed = (await _rounds_until(harness, controller, Phase.FAILED))[-1]
    assert f"RayCluster {namespace}/llm is applied by gitops, which keeps it" in (failed.message or "")
    assert [group["replicas"] for group in _groups(kube_client, namespace)] == [3, 0]


async def _rounds_until(harness: Harness, controller: Controller, phase: Phase) -> list[TargetStatus]:
    """Reconcile until the target is in a phase; return every report."""
    statuses: list[TargetStatus] = []
    async with asyncio.timeout(PATIENCE_S):
        while not statuses or statuses[-1].phase is not phase:
            await harness.round(controller)
            statuses.append(await harness.status("llm"))
            await asyncio.sleep(0.05)
    return statuses


def _groups(api: client.ApiClient, namespace: str) -> list[dict[str, Any]]:
    found = client.CustomObjectsApi(api).get_namespaced_custom_object("ray.io", "v1", namespace, "rayclusters", "llm")
    return list(found["spec"]["workerGroupSpecs"])


def _wait_for_workers(api: client.ApiClient, namespace: str, workers: int) -> set[str]:
    """Wait until the cluster has exactly this many workers, all ready; return the names of their pods."""

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
