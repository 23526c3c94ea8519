"""Many rows with one API, and everything on, on a real API server: installed, the rights of each account, removed."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from tests.cluster.chart_place import Releases
from tests.helm.chart import CHART, PROFILES
from tests.testbed.helm import Helm
from tests.testbed.kube_api import KubeApi
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.kubernetes

AGENTS = {"existingSecret": "agents"}
SETTINGS = {"config": {"settings": {"rating_w": 9000}}, "agentToken": AGENTS}
SMALL = {"database": {"sqlite": {"persistence": {"enabled": False}}}}
ROWS = [f"row-{number}" for number in range(10)]
AGENT_ROWS = {row: {"nodeSelector": {"row": row}} for row in ROWS}
EVERYTHING: dict[str, Any] = {
    **SMALL,
    "auth": {"kubernetes": {"enabled": True}},
    "agent": {"enabled": True, "act": True, "token": AGENTS},
    "powerGuards": {"row-a": SETTINGS},
    "faultMonitors": {"llm": {"job": {"nodes": 2}, "recorderToken": {"existingSecret": "recorders"}}},
    "remediators": {
        "train": {"rayAddress": "head:6379", "rayPeers": [{"podSelector": {"matchLabels": {"app": "ray"}}}]},
        "nodes": {"act": True, "kubernetes": {"enabled": True}},
    },
    "router": {
        "enabled": True,
        "config": {"engines": {"chat": {"namespace": "default", "selector": "app=chat"}}},
        "table": {"configMap": "table"},
    },
    "healthEvents": {
        "enabled": True,
        "kubernetes": {"enabled": True},
        "webhook": {"url": "https://hooks.example.invalid", "existingSecret": "hooks"},
    },
    "kueuePower": {"enabled": True, "act": True},
    "controller": {
        "kubernetes": {"enabled": True, "scale": {"apps": ["deployments"]}, "rayServices": True, "drain": True},
        "stock": {"enabled": True, "clusterQueues": ["gpus"]},
    },
}
Right = tuple[str, str, str, str]  # verb, group, resource, namespace; HERE: of the release
HERE, EVERYWHERE = "here", ""
RIGHTS: dict[str, set[Right]] = {
    "api": {("create", "authentication.k8s.io", "tokenreviews", EVERYWHERE)},
    "controller": {
        *((verb, "ray.io", "rayclusters", HERE) for verb in ("get", "patch")),
        ("get", "ray.io", "rayservices", HERE),
        ("patch", "", "pods", HERE),
        ("get", "apps", "deployments", HERE),
        *((verb, "apps", "deployments/scale", HERE) for verb in ("get", "patch")),
        ("list", "autoscaling", "horizontalpodautoscalers", HERE),
        ("list", "keda.sh", "scaledobjects", HERE),
        ("list", "autoscaling.aibrix.ai", "podautoscalers", HERE),
        *((verb, "", resource, EVERYWHERE) for verb in ("list", "watch") for resource in ("nodes", "pods")),
        ("list", "kueue.x-k8s.io", "resourceflavors", EVERYWHERE),
    },
    "remediation-nodes": {
        *((verb, "", "nodes", EVERYWHERE) for verb in ("get", "list", "patch")),
        ("list", "", "pods", EVERYWHERE),
        ("patch", "", "nodes/status", EVERYWHERE),
        ("create", "", "pods/eviction", EVERYWHERE),
        ("create", "", "events", "default"),
    },
    "router": {("list", "", "pods", "default")},
    "health-events": {("list", "", "nodes", EVERYWHERE)},
    "kueue-power": {
        *(
            ("list", "kueue.x-k8s.io", resource, EVERYWHERE)
            for resource in ("admissionchecks", "resourceflavors", "workloads")
        ),
        *(
            ("patch", "kueue.x-k8s.io", resource, EVERYWHERE)
            for resource in ("admissionchecks/status", "workloads/status")
        ),
    },
}
ACCOUNTS = [*RIGHTS, "agent", "guard-row-a", "fault-monitor-llm", "remediation-train"]
# What any account might have and none needs, and what only others need.
NEVER: set[Right] = {
    *((verb, "", "secrets", where) for verb in ("get", "list", "create") for where in (HERE, EVERYWHERE)),
    *((verb, "", "pods", EVERYWHERE) for verb in ("create", "delete")),
    ("create", "", "pods/exec", HERE),
    ("delete", "", "nodes", EVERYWHERE),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings", EVERYWHERE),
    ("impersonate", "", "users", EVERYWHERE),
}


@pytest.fixture
def releases(helm3: Helm, kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str) -> Releases:
    return Releases(helm=helm3, api=kube_api, client=kube_client, namespace=kube_namespace)


@pytest.fixture
def elsewhere(releases: Releases) -> Iterator[Releases]:
    core = client.CoreV1Api(releases.client)
    name = f"{releases.namespace}-rows"
    core.create_namespace({"metadata": {"name": name}})
    yield Releases(helm=releases.helm, api=releases.api, client=releases.client, namespace=name)
    core.delete_namespace(name)


def write(values: dict[str, Any], path: Path) -> Path:
    path.write_text(yaml.safe_dump(values))
    return path


def test_ten_rows_and_one_api_are_one_release(releases: Releases, tmp_path: Path) -> None:
    values = SMALL | {
        "agent": {"enabled": True, "act": True, "token": AGENTS, "rows": AGENT_ROWS},
        "powerGuards": dict.fromkeys(ROWS, SETTINGS),
    }
    releases.run("install", "fleet", CHART, "--values", write(values, tmp_path / "values.yaml"))
    found = releases.deployments()
    assert {f"fleet-fleetwright-guard-{row}" for row in ROWS} < found
    assert sum(name.endswith("-api") for name in found) == 1
    daemon_sets = client.AppsV1Api(releases.client).list_namespaced_daemon_set(releases.namespace).items
    assert {item.spec.template.spec.node_selector["row"] for item in daemon_sets} == set(ROWS)
    services = client.CoreV1Api(releases.client).list_namespaced_service(releases.namespace).items
    assert sum(item.spec.cluster_ip == "None" for item in services) == len(ROWS)
    releases.run("uninstall", "fleet", "--wait")
    wait_for(lambda: releases.remaining("fleet"), lambda left: not left, what="empty release")


def test_ten_rows_use_the_api_of_another_namespace(releases: Releases, elsewhere: Releases, tmp_path: Path) -> None:
    releases.run("install", "fleet", CHART, "--values", write(SMALL, tmp_path / "api.yaml"))
    url = f"http://fleet-fleetwright-api.{releases.namespace}.svc:8400"
    values = {
        "api": {"enabled": False},
        "controller": {"enabled": False},
        "externalApi": {"url": url, "tokenSecret": {"name": "token"}},
        "agent": {"enabled": True, "token": AGENTS, "rows": AGENT_ROWS},
        "powerGuards": dict.fromkeys(ROWS, SETTINGS),
    }
    elsewhere.run("install", "rows", CHART, "--values", write(values, tmp_path / "rows.yaml"))
    assert elsewhere.deployments() == {f"rows-fleetwright-guard-{row}" for row in ROWS}
    secret = client.CoreV1Api(elsewhere.client).read_namespaced_secret(
        "rows-fleetwright-guard-row-3", elsewhere.namespace
    )
    file = json.loads(base64.b64decode(secret.data["guard.json"]))
    assert (file["row"], file["budgets_from"]["url"]) == ("row-3", url)
    elsewhere.run("uninstall", "rows", "--wait")
    releases.run("uninstall", "fleet", "--wait")
    wait_for(lambda: elsewhere.remaining("rows"), lambda left: not left, what="empty release")


def test_with_everything_on_each_account_has_the_rights_it_needs_and_no_other(
    releases: Releases, tmp_path: Path
) -> None:
    values = write(EVERYTHING, tmp_path / "values.yaml")
    releases.run("install", "all", CHART, "--values", values)
    assert releases.accounts("all") == sorted(f"all-fleetwright-{name}" for name in ACCOUNTS)

    checked = NEVER.union(*RIGHTS.values())
    for account in ACCOUNTS:
        granted = {right for right in checked if _may(releases, f"all-fleetwright-{account}", right)}
        needed = RIGHTS.get(account, set())
        # A right everywhere includes the right in one namespace.
        implied = {right for right in checked if (*right[:3], EVERYWHERE) in needed}
        assert granted == needed | implied, account

    releases.run("upgrade", "all", CHART, "--reuse-values")
    releases.run("upgrade", "all", CHART, "--reuse-values", "--set", "kueuePower.enabled=false")
    releases.run("rollback", "all", "1")
    releases.run("uninstall", "all", "--wait")
    wait_for(lambda: releases.remaining("all"), lambda left: not left, what="empty release")


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.stem)
def test_every_profile_is_installed_upgraded_rolled_back_and_removed(releases: Releases, profile: Path) -> None:
    without_operator = ["--set", "monitoring.serviceMonitor.enabled=auto,monitoring.prometheusRule.enabled=auto"]
    given = ["--values", str(profile), *without_operator]
    releases.run("install", "fleet", CHART, *given)
    before = releases.deployments()
    releases.run("upgrade", "fleet", CHART, *given, "--set", "controller.observeOnly=true")
    releases.run("rollback", "fleet", "1")
    assert releases.deployments() == before
    releases.run("uninstall", "fleet", "--wait")
    wait_for(lambda: releases.remaining("fleet"), lambda left: not left, what="empty release")


def _may(releases: Releases, account: str, right: Right) -> bool:
    verb, group, resource, where = right
    namespace = releases.namespace if where == HERE else where
    return releases.may(account, verb, resource, group=group, namespace=namespace)
