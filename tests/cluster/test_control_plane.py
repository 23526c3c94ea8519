"""Tests that the control plane admits, denies, schedules and separates field managers as production does."""

import datetime as dt
from collections import Counter
from typing import Any

import pytest
from kubernetes import client
from kubernetes.dynamic.exceptions import ConflictError

from tests.testbed.gpu_nodes import ACCELERATOR_LABEL, GPU, POWER_DOMAIN_LABEL, RACK_LABEL, GpuNodes
from tests.testbed.kube_api import KubeApi
from tests.testbed.manifests import deployment
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.kubernetes


def test_the_server_is_of_the_supported_version(kube_api: KubeApi) -> None:
    assert kube_api.version.startswith("v1.36.")


def test_a_token_has_only_the_permissions_of_its_service_account(
    kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str
) -> None:
    kubeconfig_path = kube_api.service_account_kubeconfig(namespace=kube_namespace, name="default")
    with kube_api.connect(kubeconfig_path) as restricted:
        core = client.CoreV1Api(restricted)
        with pytest.raises(client.ApiException) as denied:
            core.list_namespaced_pod(kube_namespace)
        assert denied.value.status == 403
        assert f"system:serviceaccount:{kube_namespace}:default" in denied.value.body

        _grant_listing_pods(kube_client, kube_namespace)

        wait_for(lambda: _may_list_pods(core, kube_namespace), what="pods listed once the role is bound")
        with pytest.raises(client.ApiException, match="Forbidden"):
            core.delete_collection_namespaced_pod(kube_namespace)
        with pytest.raises(client.ApiException, match="Forbidden"):
            core.list_node()


def test_pods_fill_the_available_gpus_and_the_surplus_stays_pending(
    kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str, gpu_nodes: GpuNodes
) -> None:
    core = client.CoreV1Api(kube_client)
    large = gpu_nodes.add(2, rack="r1", power_domain="pd-1")
    (small,) = gpu_nodes.add(1, rack="r2", power_domain="pd-2", accelerator="NVIDIA-L40S", gpus=4)

    kube_api.apply(deployment("serve", kube_namespace, gpus=4, replicas=7, nodes=gpu_nodes.selector))

    def places() -> Counter[str | None]:
        return Counter(pod.spec.node_name for pod in _running(core, kube_namespace))

    # Two nodes of 8 GPUs hold two pods of 4 each, the node of 4 holds one, and two of the seven wait.
    wait_for(places, lambda found: found == {large[0]: 2, large[1]: 2, small: 1}, what="five pods running")
    wait_for(
        lambda: _refusals(core, kube_namespace), lambda found: len(found) == 2, what="two refusals of the scheduler"
    )
    assert all(f"Insufficient {GPU}" in message for message in _refusals(core, kube_namespace))
    labels = core.read_node(small).metadata.labels
    assert {labels[RACK_LABEL], labels[POWER_DOMAIN_LABEL], labels[ACCELERATOR_LABEL]} == {"r2", "pd-2", "NVIDIA-L40S"}


def test_freed_gpus_go_to_a_pending_pod(
    kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str, gpu_nodes: GpuNodes
) -> None:
    core = client.CoreV1Api(kube_client)
    gpu_nodes.add(1)
    kube_api.apply(deployment("first", kube_namespace, gpus=8, replicas=1, nodes=gpu_nodes.selector))
    wait_for(lambda: _running(core, kube_namespace), what="the first pod running")
    kube_api.apply(deployment("second", kube_namespace, gpus=8, replicas=1, nodes=gpu_nodes.selector))
    wait_for(lambda: _refusals(core, kube_namespace), what="the second pod refused")

    client.AppsV1Api(kube_client).delete_namespaced_deployment("first", kube_namespace)

    def names() -> list[str]:
        return [pod.metadata.labels["app"] for pod in _running(core, kube_namespace)]

    wait_for(names, lambda found: found == ["second"], what="only the second pod running")


def test_a_field_owned_by_another_manager_is_refused_with_its_name(
    kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str
) -> None:
    kube_api.apply(_unplaceable(kube_namespace, replicas=2), field_manager="autoscaler")

    with pytest.raises(ConflictError) as refused:
        kube_api.apply(_unplaceable(kube_namespace, replicas=5), field_manager="fleetwright")

    conflict = str(refused.value.body)
    assert "autoscaler" in conflict
    assert ".spec.replicas" in conflict
    kept = client.AppsV1Api(kube_client).read_namespaced_deployment("serve", kube_namespace)
    assert kept.spec.replicas == 2


def test_a_lease_survives_a_round_trip_and_refuses_a_stale_holder(
    kube_client: client.ApiClient, kube_namespace: str
) -> None:
    leases = client.CoordinationV1Api(kube_client)
    renewed = dt.datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": renewed.isoformat()}
    stale = leases.create_namespaced_lease(kube_namespace, {"metadata": {"name": "leader"}, "spec": spec})

    taken = leases.read_namespaced_lease("leader", kube_namespace)
    assert (taken.spec.holder_identity, taken.spec.lease_duration_seconds, taken.spec.renew_time) == ("a", 15, renewed)
    taken.spec.holder_identity = "b"
    leases.replace_namespaced_lease("leader", kube_namespace, taken)

    with pytest.raises(client.ApiException) as refused:
        leases.replace_namespaced_lease("leader", kube_namespace, stale)
    assert refused.value.status == 409
    assert leases.read_namespaced_lease("leader", kube_namespace).spec.holder_identity == "b"


def _grant_listing_pods(api: client.ApiClient, namespace: str) -> None:
    rbac = client.RbacAuthorizationV1Api(api)
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    rbac.create_namespaced_role(namespace, {"metadata": {"name": "reader"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    account = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    binding = {"metadata": {"name": "reader"}, "roleRef": role, "subjects": [account]}
    rbac.create_namespaced_role_binding(namespace, binding)


def _may_list_pods(core: client.CoreV1Api, namespace: str) -> bool:
    try:
        core.list_namespaced_pod(namespace)
    except client.ApiException as error:
        if error.status == 403:
            return False
        raise
    return True


def _unplaceable(namespace: str, *, replicas: int) -> dict[str, Any]:
    return deployment("serve", namespace, gpus=1, replicas=replicas, nodes={"testbed.fleetwright/pool": "none"})


def _running(core: client.CoreV1Api, namespace: str) -> list[Any]:
    return list(core.list_namespaced_pod(namespace, field_selector="status.phase=Running").items)


def _refusals(core: client.CoreV1Api, namespace: str) -> list[str]:
    """Return the scheduler's reasons for pods without a node."""
    pods = core.list_namespaced_pod(namespace, field_selector="spec.nodeName=").items
    conditions = [condition for pod in pods for condition in pod.status.conditions or []]
    return [condition.message for condition in conditions if condition.reason == "Unschedulable"]
