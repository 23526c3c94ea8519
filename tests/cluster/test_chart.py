"""Tests the chart on a real API server: installed, upgraded, rolled back and removed by Helm 3 and Helm 4.

The namespace enforces the restricted Pod Security Standard, and the user has rights in that namespace only.  kwok runs
the pods, so these tests prove admission; other tests cover the containers.
"""

import base64
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from tests.helm.chart import CHART, SQLITE
from tests.testbed.control_plane import COMPLETE
from tests.testbed.gpu_nodes import GpuNodes
from tests.testbed.helm import Helm, HelmError
from tests.testbed.kube_api import KubeApi
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.kubernetes

RELEASE = "demo"
API, CONTROLLER, TOKEN, DATA = (
    f"{RELEASE}-fleetwright-{name}" for name in ("api", "controller", "bootstrap-token", "data")
)
POSTGRES = ["--set", "database.type=postgresql", "--set", "database.postgresql.urlSecret.name=database"]
READY = ["--wait", "--timeout", "180s"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Holds a namespace that enforces the restricted standard, and a user who may install into it."""

    namespace: str
    kubeconfig_path: Path
    cluster: client.ApiClient

    @property
    def apps(self) -> Any:
        return client.AppsV1Api(self.cluster)

    @property
    def batch(self) -> Any:
        return client.BatchV1Api(self.cluster)

    @property
    def core(self) -> Any:
        return client.CoreV1Api(self.cluster)

    def run(self, helm: Helm, command: str, *arguments: str | Path) -> str:
        return helm.run(
            command, RELEASE, *arguments, "--namespace", self.namespace, kubeconfig_path=self.kubeconfig_path
        )

    def deployment(self, name: str) -> Any:
        return self.apps.read_namespaced_deployment(name, self.namespace)

    def token(self) -> str:
        secret = self.core.read_namespaced_secret(TOKEN, self.namespace)
        return base64.b64decode(secret.data["token"]).decode()

    def migrations(self) -> list[str]:
        found = self.batch.list_namespaced_job(self.namespace, label_selector="app.kubernetes.io/component=migrate")
        return [job.metadata.name for job in found.items]

    def finish_pods_of(self, component: str) -> None:
        """Wait until the pods of a Job run, and let their containers succeed."""
        selector = f"app.kubernetes.io/component={component}"
        pods = wait_for(
            lambda: self.core.list_namespaced_pod(self.namespace, label_selector=selector).items,
            lambda found: found and all(pod.status.phase == "Running" for pod in found),
            what=f"running pod of {component}",
        )
        for pod in pods:
            mark = {"metadata": {"annotations": {COMPLETE: "true"}}}
            self.core.patch_namespaced_pod(pod.metadata.name, self.namespace, mark)

    def remaining(self) -> set[str]:
        """Return all remaining objects of the release, and Helm's records of it."""
        lists = {
            "deployment": self.apps.list_namespaced_deployment,
            "job": self.batch.list_namespaced_job,
            "networkpolicy": client.NetworkingV1Api(self.cluster).list_namespaced_network_policy,
            "budget": client.PolicyV1Api(self.cluster).list_namespaced_pod_disruption_budget,
            "autoscaler": client.AutoscalingV2Api(self.cluster).list_namespaced_horizontal_pod_autoscaler,
            "service": self.core.list_namespaced_service,
            "account": self.core.list_namespaced_service_account,
            "secret": self.core.list_namespaced_secret,
            "configmap": self.core.list_namespaced_config_map,
            "claim": self.core.list_namespaced_persistent_volume_claim,
            "pod": self.core.list_namespaced_pod,
        }
        selectors = (f"app.kubernetes.io/instance={RELEASE}", f"owner=helm,name={RELEASE}")
        return {
            f"{kind}/{item.metadata.name}"
            for kind, items in lists.items()
            for selector in selectors
            for item in items(self.namespace, label_selector=selector).items
        }


@pytest.fixture
def place(kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str, gpu_nodes: GpuNodes) -> Place:
    gpu_nodes.add(2)
    core = client.CoreV1Api(kube_client)
    labels = {
        "pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/enforce-version": "latest",
    }
    core.patch_namespace(kube_namespace, {"metadata": {"labels": labels}})
    core.create_namespaced_service_account(kube_namespace, {"metadata": {"name": "installer"}})
    client.RbacAuthorizationV1Api(kube_client).create_namespaced_role_binding(
        kube_namespace,
        {
            "metadata": {"name": "installer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "installer", "namespace": kube_namespace}],
        },
    )
    kubeconfig_path = kube_api.service_account_kubeconfig(namespace=kube_namespace, name="installer")
    return Place(namespace=kube_namespace, kubeconfig_path=kubeconfig_path, cluster=kube_client)


def test_the_chart_on_sqlite_is_installed_tested_and_removed(helm: Helm, place: Place) -> None:
    notes = place.run(helm, "install", CHART, "--values", SQLITE, *READY)

    assert "kubectl --namespace" in notes
    assert "WARNING: the database is in an emptyDir" in notes
    for name in (API, CONTROLLER):
        assert place.deployment(name).status.available_replicas == 1
    _pass_helm_test(helm, place)

    place.run(helm, "uninstall", "--wait")
    wait_for(place.remaining, lambda remaining: not remaining, what="empty namespace")


def test_the_chart_on_postgres_is_installed_upgraded_rolled_back_and_removed(helm: Helm, place: Place) -> None:
    place.run(helm, "install", CHART, *POSTGRES, "--set", "api.replicas=2", *READY)
    (first_job,) = place.migrations()
    place.finish_pods_of("migrate")
    wait_for(lambda: place.batch.read_namespaced_job(first_job, place.namespace).status.succeeded, what="migration")
    token, image = place.token(), _image(place)
    assert place.deployment(API).status.available_replicas == 2
    place.batch.delete_namespaced_job(first_job, place.namespace, propagation_policy="Foreground")  # as its TTL would

    place.run(helm, "upgrade", CHART, *POSTGRES, "--set", "api.replicas=3", "--set", "image.tag=next", *READY)
    (second_job,) = place.migrations()
    assert second_job != first_job
    assert (_image(place), place.deployment(API).status.available_replicas) == ("fleetwright:next-api", 3)
    assert place.token() == token

    place.run(helm, "rollback", "1", *READY)
    assert place.migrations() == [first_job]
    assert (_image(place), place.deployment(API).status.available_replicas) == (image, 2)
    assert place.token() == token

    place.run(helm, "uninstall", "--wait")
    wait_for(place.remaining, lambda remaining: not remaining, what="empty namespace")


def test_a_database_claim_outlives_the_release_and_is_reused(helm: Helm, place: Place) -> None:
    place.run(helm, "install", CHART)  # no provisioner provides the volume here, so the API's pod waits for it
    assert f"claim/{DATA}" in place.remaining()
    place.run(helm, "uninstall", "--wait")
    wait_for(place.remaining, lambda remaining: remaining == {f"claim/{DATA}"}, what="claim and nothing else")
    place.run(helm, "install", CHART)
    place.run(helm, "uninstall", "--wait")


def test_a_deleted_token_is_recreated_and_pods_restart_with_the_new_one(helm: Helm, place: Place) -> None:
    place.run(helm, "install", CHART, "--values", SQLITE, *READY)
    old, generation = place.token(), place.deployment(API).metadata.generation
    place.run(helm, "upgrade", CHART, "--values", SQLITE, *READY)
    assert place.deployment(API).metadata.generation == generation  # an upgrade that changes nothing restarts nothing

    place.core.delete_namespaced_secret(TOKEN, place.namespace)
    place.run(helm, "upgrade", CHART, "--values", SQLITE, *READY)
    assert place.token() != old
    assert place.deployment(API).metadata.generation > generation


def test_helm_get_values_does_not_show_the_token(helm: Helm, place: Place) -> None:
    place.run(helm, "install", CHART, "--values", SQLITE, *READY)
    shown = helm.run(
        "get", "values", RELEASE, "--all", "--namespace", place.namespace, kubeconfig_path=place.kubeconfig_path
    )
    assert place.token() not in shown


def test_helm_4_upgrades_a_release_of_helm_3(helm3: Helm, helm4: Helm, place: Place) -> None:
    place.run(helm3, "install", CHART, "--values", SQLITE, *READY)
    token = place.token()
    place.run(helm4, "upgrade", CHART, "--values", SQLITE, "--set", "image.tag=next", *READY)
    assert (_image(place), place.token()) == ("fleetwright:next-api", token)


def test_autoscaler_and_disruption_budget_are_accepted(helm: Helm, place: Place) -> None:
    place.run(helm, "install", CHART, *POSTGRES, "--set", "api.autoscaling.enabled=true")
    assert {f"autoscaler/{API}", f"budget/{API}"} <= place.remaining()


def test_the_namespace_refuses_a_pod_with_more_privileges(helm3: Helm, place: Place) -> None:
    """Without enforcement the tests above would prove nothing."""
    with pytest.raises(HelmError):
        place.run(
            helm3, "install", CHART, "--values", SQLITE, "--set", "securityContext.allowPrivilegeEscalation=true",
            "--wait", "--timeout", "5s",
        )  # fmt: skip
    conditions = {each.type: each.message for each in place.deployment(API).status.conditions}
    assert 'violates PodSecurity "restricted:latest"' in conditions["ReplicaFailure"]


def _pass_helm_test(helm: Helm, place: Place) -> None:
    with ThreadPoolExecutor() as background:
        testing = background.submit(place.run, helm, "test", "--timeout", "180s")
        place.finish_pods_of("test")
        assert "Succeeded" in testing.result()


def _image(place: Place) -> str:
    (container,) = place.deployment(API).spec.template.spec.containers
    return str(container.image)
