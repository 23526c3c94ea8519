"""Upgrades from every chart of the history on a real API server, with what UPGRADE.md describes, and back."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from tests.cluster.chart_place import Releases, chart_history, unpack
from tests.helm.chart import CHART
from tests.testbed.helm import Helm
from tests.testbed.kube_api import KubeApi

pytestmark = pytest.mark.kubernetes

RELEASE = "demo"
HISTORY = list(chart_history())
FIRST = [pytest.param(commit, id=f"{version}-{commit}") for commit, version in HISTORY if version.startswith("0.1.")]
SECOND = [commit for commit, version in HISTORY if version == "0.2.0"][1:]  # the newest may be this one
UNKNOWN = "the checkout has no history with older charts"
GUARD = {"settings": {"rating_w": 9000}, "agents": [{"name": "n1", "url": "http://n1.invalid:9403"}]}
OLD_MONITORS = ("watcher", "faultMonitor")
SMALL = {"database": {"sqlite": {"persistence": {"enabled": False}}}}


@pytest.fixture
def releases(helm3: Helm, kube_api: KubeApi, kube_client: client.ApiClient, kube_namespace: str) -> Releases:
    return Releases(helm=helm3, api=kube_api, client=kube_client, namespace=kube_namespace)


def old_values(chart: Path) -> dict[str, Any]:
    """Return values that use all that an old chart has: a guard and a fault monitor."""
    known = yaml.safe_load((chart / "values.yaml").read_text())
    values: dict[str, Any] = dict(SMALL)
    if "guard" in known:
        values["guard"] = {"enabled": True, "config": GUARD | {"row": "row-a"}}
    for name in OLD_MONITORS:
        if name in known:
            values[name] = {"enabled": True, "job": {"nodes": 2}}
    return values


def moved(old: dict[str, Any]) -> dict[str, Any]:
    """Return the values of UPGRADE.md: old keys as null, their contents in maps."""
    new: dict[str, Any] = {key: None for key in old if key != "database"}
    if "guard" in old:
        new["powerGuards"] = {"row-a": {"config": GUARD}}
    if any(name in old for name in OLD_MONITORS):
        new["faultMonitors"] = {"llm": {"job": {"nodes": 2}, "recorderToken": {"existingSecret": "recorders"}}}
    return new


def write(values: dict[str, Any], path: Path) -> Path:
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.skipif(not FIRST, reason=UNKNOWN)
@pytest.mark.parametrize("commit", FIRST)
def test_every_chart_of_0_1_is_upgraded_with_the_described_mapping_and_rolled_back(
    releases: Releases, tmp_path: Path, commit: str
) -> None:
    chart = unpack(commit, tmp_path)
    old = old_values(chart)
    releases.run("install", RELEASE, chart, "--values", write(old, tmp_path / "old.yaml"))
    before = releases.deployments()

    new = write(moved(old), tmp_path / "new.yaml")
    releases.run("upgrade", RELEASE, CHART, "--reset-then-reuse-values", "--values", new)
    after = releases.deployments()
    assert f"{RELEASE}-fleetwright-api" in after
    assert ("guard" in old) == (f"{RELEASE}-fleetwright-guard-row-a" in after)
    assert not any(name.endswith(("-guard", "-watcher", "-healer")) for name in after)

    releases.run("rollback", RELEASE, "1")
    assert releases.deployments() == before
    releases.run("uninstall", RELEASE)


@pytest.mark.skipif(not SECOND, reason=UNKNOWN)
@pytest.mark.parametrize("which", [0, -1], ids=["newest", "oldest"])
def test_a_chart_of_0_2_is_upgraded_with_its_own_values_and_rolled_back(
    releases: Releases, tmp_path: Path, which: int
) -> None:
    chart = unpack(SECOND[which], tmp_path)
    releases.run("install", RELEASE, chart, "--values", write(SMALL, tmp_path / "old.yaml"))
    before = releases.deployments()
    releases.run("upgrade", RELEASE, CHART, "--reuse-values")
    assert releases.deployments() == before
    releases.run("upgrade", RELEASE, CHART, "--reuse-values", "--set", "router.enabled=false")
    releases.run("rollback", RELEASE, "1")
    assert releases.deployments() == before
    releases.run("uninstall", RELEASE)
