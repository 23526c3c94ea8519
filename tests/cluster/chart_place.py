"""A namespace of the control plane into which Helm installs releases of the chart, and what is left of them."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client

from tests.helm.chart import ROOT
from tests.testbed.helm import Helm
from tests.testbed.kube_api import KubeApi


@dataclass(frozen=True, kw_only=True)
class Releases:
    """Installs releases as an administrator."""

    helm: Helm
    api: KubeApi
    client: client.ApiClient
    namespace: str

    def run(self, command: str, release: str, *arguments: str | Path) -> str:
        return self.helm.run(
            command, release, *arguments, "--namespace", self.namespace, kubeconfig_path=self.api.kubeconfig_path
        )

    def deployments(self) -> set[str]:
        found = client.AppsV1Api(self.client).list_namespaced_deployment(self.namespace).items
        return {item.metadata.name for item in found}

    def remaining(self, release: str) -> set[str]:
        """Return the names of a release's objects, in all namespaces, except kept claims."""
        apps, core = client.AppsV1Api(self.client), client.CoreV1Api(self.client)
        rights = client.RbacAuthorizationV1Api(self.client)
        networking, batch = client.NetworkingV1Api(self.client), client.BatchV1Api(self.client)
        lists: list[Any] = [
            apps.list_deployment_for_all_namespaces, apps.list_daemon_set_for_all_namespaces,
            core.list_service_for_all_namespaces, core.list_secret_for_all_namespaces,
            core.list_config_map_for_all_namespaces, core.list_service_account_for_all_namespaces,
            networking.list_network_policy_for_all_namespaces, batch.list_job_for_all_namespaces,
            rights.list_role_for_all_namespaces, rights.list_role_binding_for_all_namespaces,
            rights.list_cluster_role, rights.list_cluster_role_binding,
        ]  # fmt: skip
        selector = f"app.kubernetes.io/instance={release}"
        return {item.metadata.name for each in lists for item in each(label_selector=selector).items}

    def may(self, account: str, verb: str, resource: str, *, group: str = "", namespace: str = "") -> bool:
        """Return whether a ServiceAccount of the namespace has a right, by a SubjectAccessReview."""
        name, _, sub = resource.partition("/")
        attributes = {"verb": verb, "group": group, "resource": name, "subresource": sub, "namespace": namespace}
        user = f"system:serviceaccount:{self.namespace}:{account}"
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", "system:authenticated"]
        spec = {"user": user, "groups": groups, "resourceAttributes": attributes}
        review = client.AuthorizationV1Api(self.client).create_subject_access_review({"spec": spec})
        return bool(review.status.allowed)

    def accounts(self, release: str) -> list[str]:
        selector = f"app.kubernetes.io/instance={release}"
        found = client.CoreV1Api(self.client).list_namespaced_service_account(self.namespace, label_selector=selector)
        return sorted(item.metadata.name for item in found.items)


def chart_history() -> Iterator[tuple[str, str]]:
    """Yield commit and version of every state of the chart's values in the history, newest first."""
    paths = ["helm/fleetwright/Chart.yaml", "helm/fleetwright/values.yaml"]
    log = subprocess.run(
        ["git", "log", "--no-merges", "--format=%h", "--", *paths],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    for commit in log.stdout.split():
        shown = subprocess.run(
            ["git", "show", f"{commit}:helm/fleetwright/Chart.yaml"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        version = [line.split()[1] for line in shown.stdout.splitlines() if line.startswith("version:")]
        yield commit, version[0] if version else ""


def unpack(commit: str, into: Path) -> Path:
    """Write the chart of a commit below a folder, and return its path."""
    archive = subprocess.run(
        ["git", "archive", commit, "helm/fleetwright"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(into)], input=archive, check=True)
    return into / "helm" / "fleetwright"
