"""Tests that both Helm versions work and do not use the user's configuration."""

from pathlib import Path

import pytest

from tests.testbed.helm import Helm, HelmError
from tests.testbed.kube_api import KubeApi

pytestmark = pytest.mark.kubernetes


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """Create a chart of one ConfigMap that requires a recent Kubernetes."""
    directory = tmp_path / "chart"
    (directory / "templates").mkdir(parents=True)
    (directory / "Chart.yaml").write_text("apiVersion: v2\nname: greeting\nversion: 0.1.0\nkubeVersion: '>=1.30.0-0'\n")
    (directory / "values.yaml").write_text("word: hello\n")
    (directory / "templates" / "map.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: greeting}\ndata: {word: {{ .Values.word | quote }}}\n"
    )
    return directory


def test_there_is_one_helm_of_each_major_version(helm3: Helm, helm4: Helm) -> None:
    assert helm3.version.startswith("v3.")
    assert helm4.version == "v4.3.1"


def test_a_chart_is_rendered_without_a_cluster(helm: Helm, chart: Path) -> None:
    rendered = helm.run("template", "here", chart, "--set", "word=bonjour")
    assert 'word: "bonjour"' in rendered


def test_a_failure_names_the_command_and_the_cause(helm: Helm, tmp_path: Path) -> None:
    with pytest.raises(HelmError, match=r"(?s)helm template: .*no-such-chart"):
        helm.run("template", "here", tmp_path / "no-such-chart")


def test_a_release_is_installed_upgraded_rolled_back_and_removed(
    helm: Helm, chart: Path, kube_api: KubeApi, kube_namespace: str
) -> None:
    def run(*arguments: str | Path) -> str:
        return helm.run(*arguments, "--namespace", kube_namespace, kubeconfig_path=kube_api.kubeconfig_path)

    run("install", "here", chart)
    run("upgrade", "here", chart, "--set", "word=bonjour")
    assert 'word: "bonjour"' in run("get", "manifest", "here")
    run("rollback", "here", "1")
    assert 'word: "hello"' in run("get", "manifest", "here")
    run("uninstall", "here")
    with pytest.raises(HelmError, match="not found"):
        run("status", "here")


def test_the_helm_environment_of_the_user_is_not_used(helm: Helm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELM_NAMESPACE", "production")
    monkeypatch.setenv("HELM_PLUGINS", "/opt/plugins")

    variables = {
        name: value.strip('"') for name, _, value in (line.partition("=") for line in helm.run("env").splitlines())
    }

    assert variables["HELM_NAMESPACE"] == "default"
    for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "HELM_PLUGINS"):
        assert Path(variables[name]).is_relative_to(helm.home)
