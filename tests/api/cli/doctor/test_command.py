"""The command against a real service, and its exit code; no output holds a secret."""

import json
from pathlib import Path

import pytest
import yaml

from api.cli.doctor.cluster_checks import CONTROLLER_RIGHTS
from tests.helm.chart import one, render
from tests.testbed.cli import Cli
from tests.testbed.helm import Helm
from tests.testbed.kube_api import KubeApi
from tests.testbed.server import ADMIN_TOKEN


def outcomes(text: str) -> dict[str, str]:
    return {found["check"]: found["outcome"] for found in json.loads(text)}


def test_a_running_service_has_no_failure(remote: Cli) -> None:
    done = remote("doctor", "-o", "json")
    found = outcomes(done.stdout)
    assert done.code == 0, done.stdout
    assert found == {
        "service-live": "ok",
        "service-ready": "ok",
        "service-certificate": "skipped",
        "service-metrics": "ok",
        "service-version": "ok",
        "service-token": "warning",  # of an administrator
        "service-anonymous": "ok",
        "service-leases": "skipped",
        "kubernetes-rights": "skipped",
    }
    assert ADMIN_TOKEN not in done.stdout


def test_a_service_that_does_not_respond_is_a_failure_of_every_check(cli: Cli) -> None:
    done = cli("doctor", "--url", "http://127.0.0.1:9", "-o", "json")
    assert done.code == 1
    assert {outcomes(done.stdout)[name] for name in ("service-live", "service-ready")} == {"failure"}


def test_an_unknown_token_is_a_failure(cli: Cli, service: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"fw_{'a' * 12}_{'b' * 43}")
    done = cli("doctor", "--url", service, "--token-file", tmp_path / "token", "-o", "json")
    assert done.code == 1
    assert outcomes(done.stdout)["service-token"] == "failure"


def test_a_missing_database_file_is_not_created(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETWRIGHT_DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path}/none.db")
    done = cli("doctor")
    assert done.code == 1
    assert f"there is no file {tmp_path}/none.db" in done.stdout
    assert not (tmp_path / "none.db").exists()


def test_settings_that_are_refused_are_a_failure(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETWRIGHT_HOST", "0.0.0.0")
    monkeypatch.setenv("FLEETWRIGHT_ANONYMOUS_READ", "true")
    done = cli("doctor", "-o", "json")
    assert done.code == 1
    assert outcomes(done.stdout)["settings"] == "failure"


def test_no_password_of_the_database_is_printed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETWRIGHT_DATABASE_URL", "postgresql+psycopg://fleet:hunter2@127.0.0.1:9/fleet")
    done = cli("doctor", "-o", "json")
    assert done.code == 1
    assert outcomes(done.stdout)["database-schema"] == "failure"
    assert "hunter2" not in done.stdout + done.stderr


def test_the_checked_rights_are_those_that_the_chart_grants(helm3: Helm) -> None:
    role = one(render(helm3, "--set", "controller.kubernetes.enabled=true"), "Role")
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {tuple(right) for right in CONTROLLER_RIGHTS} == granted


@pytest.mark.kubernetes
def test_missing_rights_in_a_cluster_are_a_failure(
    cli: Cli, kube_api: KubeApi, kube_namespace: str, helm3: Helm
) -> None:
    own = kube_api.service_account_kubeconfig(namespace=kube_namespace, name="default")
    command = ("doctor", "--url", "http://127.0.0.1:9", "--namespace", kube_namespace, "--kubeconfig", own)
    refused = json.loads(cli(*command, "-o", "json").stdout)[-1]
    assert refused["outcome"] == "failure"
    assert f"patch rayclusters.ray.io in {kube_namespace}" in refused["detail"]
    values = ("--set", "controller.kubernetes.enabled=true", "--namespace", kube_namespace)
    role = one(render(helm3, *values), "Role")
    binding = one(render(helm3, *values), "RoleBinding")
    binding["subjects"] = [{"kind": "ServiceAccount", "name": "default", "namespace": kube_namespace}]
    for manifest in (role, binding):
        kube_api.apply(yaml.safe_load(yaml.safe_dump(manifest)))
    granted = json.loads(cli(*command, "-o", "json").stdout)[-1]
    assert granted["outcome"] == "ok", granted


@pytest.mark.kubernetes
def test_an_api_that_reviews_tokens_needs_the_right(
    cli: Cli, kube_api: KubeApi, kube_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETWRIGHT_KUBERNETES_TOKENS", "true")
    own = kube_api.service_account_kubeconfig(namespace=kube_namespace, name="default")
    for kubeconfig, outcome in ((own, "failure"), (kube_api.kubeconfig_path, "ok")):
        done = cli("doctor", "--url", "http://127.0.0.1:9", "--kubeconfig", kubeconfig, "-o", "json")
        assert json.loads(done.stdout)[-1]["outcome"] == outcome
