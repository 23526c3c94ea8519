"""Tests that the real Kueue admits jobs within the quota, queues the others, and admits them when there is room."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client

from tests.testbed.control_plane import COMPLETE
from tests.testbed.gpu_nodes import GpuNodes
from tests.testbed.kube_api import KubeApi
from tests.testbed.kueue import Kueue
from tests.testbed.manifests import kueue_queue, queued_job
from tests.testbed.waiting import wait_for

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("kueue")]

QUOTA_GPUS = 8
JOB_GPUS = 4


@pytest.fixture
def queue(kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str, gpu_nodes: GpuNodes) -> Iterator[str]:
    """Create a queue with room for two jobs, on nodes with room for more."""
    gpu_nodes.add(2)
    name = f"queue-{kube_namespace}"
    for manifest in kueue_queue(name, kube_namespace, gpus=QUOTA_GPUS, nodes=gpu_nodes.selector):
        kube_api.apply(manifest)
    yield name
    custom = client.CustomObjectsApi(kube_client)
    for plural in ("clusterqueues", "resourceflavors"):
        custom.delete_cluster_custom_object("kueue.x-k8s.io", "v1beta2", plural, name)


def test_kueue_is_of_the_pinned_version(kueue: Kueue) -> None:
    assert kueue.version == "v0.19.0"


def test_two_of_three_jobs_are_admitted_and_run_on_the_nodes_of_the_queue(
    kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str, queue: str, gpu_nodes: GpuNodes
) -> None:
    _submit(kube_api, kube_namespace, queue, ["a", "b", "c"])

    admitted = wait_for(lambda: _running(kube_client, kube_namespace), lambda jobs: len(jobs) == 2, what="two jobs")

    reasons = wait_for(lambda: _refusals(kube_client, kube_namespace), what="a reason for the third job to wait")
    assert len(reasons) == 1
    assert f"insufficient unused quota for nvidia.com/gpu in flavor {queue}" in reasons[0]
    pods = client.CoreV1Api(kube_client).list_namespaced_pod(kube_namespace).items
    assert {pod.metadata.labels["job-name"] for pod in pods} == admitted
    assert all(pod.spec.node_selector == gpu_nodes.selector for pod in pods)


def test_the_next_job_is_admitted_after_one_finishes(
    kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str, queue: str
) -> None:
    _submit(kube_api, kube_namespace, queue, ["a", "b", "c"])
    first = wait_for(lambda: _running(kube_client, kube_namespace), lambda jobs: len(jobs) == 2, what="two jobs")

    finished = min(first)
    _complete(kube_client, kube_namespace, finished)

    expected = {"a", "b", "c"} - {finished}
    wait_for(lambda: _running(kube_client, kube_namespace), expected.__eq__, what=f"{expected} running")
    assert client.BatchV1Api(kube_client).read_namespaced_job(finished, kube_namespace).status.succeeded == 1


def test_the_next_job_is_admitted_after_one_is_deleted(
    kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str, queue: str
) -> None:
    _submit(kube_api, kube_namespace, queue, ["a", "b", "c"])
    first = wait_for(lambda: _running(kube_client, kube_namespace), lambda jobs: len(jobs) == 2, what="two jobs")

    deleted = min(first)
    client.BatchV1Api(kube_client).delete_namespaced_job(deleted, kube_namespace, propagation_policy="Background")

    expected = {"a", "b", "c"} - {deleted}
    wait_for(lambda: _running(kube_client, kube_namespace), expected.__eq__, what=f"{expected} running")


def test_the_webhook_refuses_to_move_an_admitted_job_to_another_queue(
    kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str, queue: str
) -> None:
    _submit(kube_api, kube_namespace, queue, ["a"])
    wait_for(lambda: _running(kube_client, kube_namespace), what="a job")

    moved = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "elsewhere"}}}
    with pytest.raises(client.ApiException, match="queue-name"):
        client.BatchV1Api(kube_client).patch_namespaced_job("a", kube_namespace, moved)


def _submit(api: KubeApi, namespace: str, queue: str, names: list[str]) -> None:
    for name in names:
        api.apply(queued_job(name, namespace, gpus=JOB_GPUS, queue=queue))


def _running(api: client.ApiClient, namespace: str) -> set[str]:
    """Return the names of the admitted jobs whose pods run."""
    jobs = client.BatchV1Api(api).list_namespaced_job(namespace).items
    return {job.metadata.name for job in jobs if not job.spec.suspend and job.status.ready == 1}


def _refusals(api: client.ApiClient, namespace: str) -> list[str]:
    """Return the reasons of workloads without a reserved quota."""
    found = client.CustomObjectsApi(api).list_namespaced_custom_object(
        "kueue.x-k8s.io", "v1beta2", namespace, "workloads"
    )
    conditions: list[dict[str, Any]] = [
        c for item in found["items"] for c in item.get("status", {}).get("conditions", [])
    ]
    return [c["message"] for c in conditions if (c["type"], c["status"]) == ("QuotaReserved", "False")]


def _complete(api: client.ApiClient, namespace: str, job: str) -> None:
    """Let the pod of `job` succeed."""
    core = client.CoreV1Api(api)
    (pod,) = core.list_namespaced_pod(namespace, label_selector=f"job-name={job}").items
    core.patch_namespaced_pod(pod.metadata.name, namespace, {"metadata": {"annotations": {COMPLETE: "true"}}})
