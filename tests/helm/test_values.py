"""Tests that values are described and used, and that invalid ones are refused with a reason."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from scripts import chart_readme, chart_schema
from tests.helm.chart import CHART, PROFILES, render, render_text
from tests.helm.value_changes import BASES, CHANGED_TOGETHER, CHANGES, POSTGRES, Values
from tests.testbed.helm import Helm, HelmError

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("replicas=2", "dditional propert.*replicas"),
        ("api.replicaCount=2", "dditional propert.*replicaCount"),
        ("api.replicas=0", "api.*replicas"),
        ("api.replicas=two", "api.*replicas"),
        ("api.service.port=65536", "port"),
        ("api.service.type=ExternalName", "type"),
        ("api.probes.liveness.periodSeconds=0", "periodSeconds"),
        ("api.podDisruptionBudget.maxUnavailable=0", "maxUnavailable"),
        ("api.podDisruptionBudget.maxUnavailable=150%", "maxUnavailable"),
        ("api.resources.requests.memory=1 GB", "memory"),
        ("api.extraEnv[0].value=x", "name"),
        ("api.podLabels.app\\.kubernetes\\.io/name=x", "podLabels"),
        ("commonLabels.team=not a label", "team"),
        ("worker.replicas=0", "worker.*replicas"),
        ("worker.jobMemoryMiB=100", "jobMemoryMiB"),
        ("controller.periodSeconds=0", "periodSeconds"),
        ("controller.kubernetes.namespaces={Ray_Jobs}", "namespaces"),
        ("controller.kubernetes.scale.apps={Deployment}", "scale"),
        ("database.type=mysql", "type"),
        ("database.sqlite.persistence.size=large", "size"),
        ("image.tag=not a tag", "tag"),
        ("image.digests.api=sha256:abc", "digest"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("logLevel=TRACE", "logLevel"),
        ("monitoring.serviceMonitor.interval=fast", "interval"),
        ("migrations.ttlSecondsAfterFinished=-1", "ttlSecondsAfterFinished"),
    ],
)
def test_an_invalid_value_is_named(helm: Helm, values: str, message: str) -> None:
    with pytest.raises(HelmError, match=message) as caught:
        render(helm, "--set", values)
    assert "schema" in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("api.replicas=2", "api.replicas is 2, but database.type sqlite allows 1"),
        ("api.autoscaling.enabled=true", "api.autoscaling.enabled is true, but database.type sqlite"),
        ("faultMonitor.enabled=true", "faultMonitor is from an older chart: move it to an entry of faultMonitors"),
        ("database.type=postgresql", "database.postgresql.urlSecret.name is empty"),
        ("database.postgresql.urlSecret.name=x", 'database.postgresql.urlSecret.name is "x", but'),
        ("migrations.urlSecret.name=x", 'migrations.urlSecret.name is "x", but database.type is sqlite'),
        (
            "database.type=postgresql,api.autoscaling.enabled=true,api.autoscaling.minReplicas=9",
            "api.autoscaling.minReplicas is 9: allowed are 1 to maxReplicas, 6",
        ),
        (
            "controller.kubernetes.enabled=true,controller.serviceAccount.create=false",
            "controller has permissions, but controller.serviceAccount.name is empty",
        ),
        ("worker.replicas=2", "worker.replicas is 2, but with database.type sqlite the API runs one worker itself"),
        ("worker.enabled=false", "worker.enabled is false, but with database.type sqlite no worker can run elsewhere"),
        ("worker.extraEnv[0].name=A", "worker.extraEnv is set, but with database.type sqlite"),
        ("worker.resources.limits.memory=null", "worker.resources.limits.memory is empty, but with database.type"),
        (
            "worker.jobMemoryMiB=2048",
            "limits.memory is 4500Mi, but worker.concurrency 2 and worker.jobMemoryMiB 2048 need 8492Mi",
        ),
        (
            "database.type=postgresql,worker.extraEnv[0].name=FLEETWRIGHT_PLAN_CONCURRENCY",
            "worker.extraEnv sets FLEETWRIGHT_PLAN_CONCURRENCY",
        ),
        ("api.preStopSleepSeconds=40", "api.preStopSleepSeconds is 40: allowed is less than"),
        ("api.extraEnv[0].name=FLEETWRIGHT_HOST", "api.extraEnv sets FLEETWRIGHT_HOST"),
        ("controller.extraEnv[0].name=FLEETWRIGHT_LOG_LEVEL", "controller.extraEnv sets FLEETWRIGHT_LOG_LEVEL"),
    ],
)  # fmt: skip
def test_inconsistent_values_are_named(helm: Helm, values: str, message: str) -> None:
    with pytest.raises(HelmError, match=re.escape(message)):
        render(helm, "--set", values)


def test_all_inconsistencies_are_reported_at_once(helm3: Helm) -> None:
    with pytest.raises(HelmError) as caught:
        render(helm3, "--set", "api.replicas=2,migrations.urlSecret.name=x,api.preStopSleepSeconds=50")
    assert str(caught.value).count("\n  - ") == 3


def test_the_schema_describes_only_existing_values() -> None:
    for path in _leaves(SCHEMA):
        _value_at(path)


def test_no_object_of_the_schema_accepts_unknown_values() -> None:
    """Objects with known fields are closed.  Types of Kubernetes and of embedded files are tested with wrong values."""
    objects = [SCHEMA, *(node for name, node in SCHEMA["$defs"].items() if name[0].islower())]
    for node in objects:
        objects.extend(child for child in node.get("properties", {}).values() if "properties" in child)
    described = [node for node in objects if "properties" in node]
    assert len(described) > 20
    assert all(node["additionalProperties"] is False for node in described)


def test_the_list_of_changes_is_complete() -> None:
    assert CHANGES.keys() == set(_leaves(SCHEMA))


@pytest.mark.parametrize("path", CHANGES)
def test_every_value_has_an_effect(helm3: Helm, tmp_path: Path, path: str) -> None:
    base = next((values for prefix, values in BASES.items() if path.startswith(prefix)), POSTGRES)
    changed = {**base, **CHANGED_TOGETHER.get(path, {path: CHANGES[path]})}
    assert _rendered(helm3, json.dumps(base)) != render_text(helm3, *_arguments(changed, tmp_path))


def test_the_readme_describes_every_value() -> None:
    readme = (CHART / "README.md").read_text()
    assert readme == chart_readme.with_table(readme, (CHART / "values.yaml").read_text())
    assert "| `api.autoscaling.maxReplicas` | `6` | Maximum number of replicas. |" in readme


def test_the_schema_and_the_defaults_are_up_to_date() -> None:
    for path, text in chart_schema.files():
        assert path.read_text() == text, f"{path.name}: run python -m scripts.chart_schema"


def test_every_template_sets_absent_values_first() -> None:
    """With --reuse-values the values of an older chart replace the defaults of this one."""
    for path in (CHART / "templates").rglob("*"):
        if path.is_file() and not path.name.startswith("_"):
            assert path.read_text().startswith('{{- include "fleetwright.defaults" . -}}'), path.name


def test_a_value_without_a_description_is_an_error() -> None:
    with pytest.raises(chart_readme.UndescribedError, match=r"api\.port"):
        chart_readme.described("api:\n  # -- Hosts.\n  hosts: 1\n  port: 2\n")


def test_the_readme_names_every_profile() -> None:
    assert {path.name for path in PROFILES} == set(re.findall(r"\(ci/([^)]+)\)", (CHART / "README.md").read_text()))


@cache
def _rendered(helm: Helm, base: str) -> str:
    with TemporaryDirectory() as folder:
        return render_text(helm, *_arguments(json.loads(base), Path(folder)))


def _leaves(node: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the path of every value in the schema, except Helm's own `global`."""
    reference = str(node.get("$ref", "")).removeprefix("#/$defs/")
    node = SCHEMA["$defs"].get(reference, node)
    is_type = reference[:1].isupper()  # of Kubernetes, or an embedded configuration file
    if "properties" not in node or is_type or path.endswith(".resources"):
        yield path
        return
    for key, child in node["properties"].items():
        if key != "global":
            yield from _leaves(child, f"{path}.{key}" if path else key)


def _value_at(path: str) -> Any:
    value: Any = VALUES
    for key in path.split("."):
        value = value[key]
    return value


def _arguments(values: Values, folder: Path) -> list[str]:
    """Write values to a file, and return the arguments that give it to Helm."""
    tree: dict[str, Any] = {}
    for dotted, value in values.items():
        *parents, last = dotted.split(".")
        node = tree
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = value
    path = folder / "values.json"
    path.write_text(json.dumps(tree))
    return ["--values", str(path)]
