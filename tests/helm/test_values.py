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

from scripts import chart_readme
from tests.helm.chart import CHART, PROFILES, render, render_text
from tests.testbed.helm import Helm, HelmError

Values = dict[str, object]  # by dotted path

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
GUARD_FILE = {"row": "a", "settings": {"rating_w": 9000}, "agents": [{"name": "n", "url": "http://n.invalid"}]}
JOB_FILE = {"name": "llm", "nodes": 2}
# An existing Secret, because the chart generates a new token at every rendering.
FIXED: Values = {"auth.bootstrapToken.existingSecret": "tokens"}
# Values with which every other one has an effect.
SQLITE: Values = {**FIXED, "commonLabels.team": "a"}
POSTGRES: Values = {
    **SQLITE,
    "api.replicas": 2,
    "controller.token.existingSecret": "controller",
    "agent.act": True,
    "agent.enabled": True,
    "agent.tls.existingSecret": "agent-tls",
    "agent.token.existingSecret": "agents",
    "guard.agentTls.existingSecret": "guard-tls",
    "guard.agentToken.existingSecret": "agents",
    "guard.apiToken.existingSecret": "api",
    "guard.budgetToken.existingSecret": "budgets",
    "guard.config": GUARD_FILE,
    "guard.enabled": True,
    "faultMonitor.recorderToken.existingSecret": "recorders",
    "faultMonitor.apiToken.existingSecret": "api",
    "faultMonitor.job": JOB_FILE,
    "faultMonitor.names": ["gpu-1", "gpu-2"],
    "faultMonitor.enabled": True,
    "remediation.enabled": True,
    "remediation.rayAddress": "head:6379",
    "remediation.token.existingSecret": "remediation",
    "networkPolicy.remediationPeers": [{"podSelector": {"matchLabels": {"app": "ray"}}}],
    "database.postgresql.urlSecret.name": "database",
    "database.type": "postgresql",
    "migrations.urlSecret.name": "migrations",
    "monitoring.prometheusRule.enabled": True,
    "monitoring.serviceMonitor.enabled": True,
}
AUTOSCALED: Values = {**POSTGRES, "api.autoscaling.enabled": True}
ON_KUBERNETES: Values = {**POSTGRES, "controller.kubernetes.enabled": True}
REVIEWED: Values = {**POSTGRES, "auth.kubernetes.enabled": True}
BASES = {
    "auth.kubernetes.audience": REVIEWED,
    "auth.kubernetes.grants": REVIEWED,
    "api.autoscaling": AUTOSCALED,
    "controller.kubernetes.drain": ON_KUBERNETES,
    "controller.kubernetes.namespaces": ON_KUBERNETES,
    "controller.kubernetes.scale": ON_KUBERNETES,
    "database.sqlite": SQLITE,
    "database.type": SQLITE,
}

PEERS = [{"podSelector": {"matchLabels": {"app": "other"}}}]
EGRESS = [{"ports": [{"port": 1}]}]
RESOURCES = {"requests": {"cpu": 1}, "limits": {"memory": "7Gi"}}
# Another legal value for each existing value.
CHANGES: Values = {
    "nameOverride": "other",
    "fullnameOverride": "other",
    "commonLabels": {"team": "b"},
    "image.registry": "registry.invalid",
    "image.repository": "other",
    "image.tag": "other",
    "image.digest": f"sha256:{'0' * 64}",
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "pull"}],
    "logLevel": "ERROR",
    "bindAddress": "::",
    "podSecurityContext": {"runAsNonRoot": True, "runAsUser": 1},
    "securityContext": {"runAsUser": 1},
    "auth.bootstrapToken.existingSecret": "other",
    "auth.bootstrapToken.key": "other",
    "database.type": "postgresql",
    "database.postgresql.urlSecret.name": "other",
    "database.postgresql.urlSecret.key": "other",
    "database.sqlite.persistence.enabled": False,
    "database.sqlite.persistence.existingClaim": "other",
    "database.sqlite.persistence.retain": False,
    "database.sqlite.persistence.storageClassName": "other",
    "database.sqlite.persistence.size": "7Gi",
    "migrations.enabled": False,
    "migrations.urlSecret.name": "other",
    "migrations.urlSecret.key": "other",
    "migrations.backoffLimit": 7,
    "migrations.activeDeadlineSeconds": 7,
    "migrations.ttlSecondsAfterFinished": 7,
    "migrations.resources": RESOURCES,
    "api.replicas": 7,
    "api.service.type": "NodePort",
    "api.service.port": 7,
    "api.service.annotations": {"a": "b"},
    "api.tls.existingSecret": "certificate",
    "auth.kubernetes.enabled": True,
    "auth.kubernetes.audience": "planner",
    "auth.kubernetes.grants": {"system:serviceaccount:ml:planner": {"scopes": ["plan"], "project": "ml"}},
    "api.autoscaling.enabled": False,
    "api.autoscaling.minReplicas": 3,
    "api.autoscaling.maxReplicas": 7,
    "api.autoscaling.targetCPUUtilizationPercentage": 7,
    "api.podDisruptionBudget.enabled": False,
    "api.podDisruptionBudget.maxUnavailable": "50%",
    **{
        f"api.probes.{probe}.{field}": 7
        for probe in ("startup", "liveness", "readiness")
        for field in ("periodSeconds", "timeoutSeconds", "failureThreshold")
    },
    "api.preStopSleepSeconds": 7,
    "worker.enabled": False,
    "worker.replicas": 7,
    "worker.concurrency": 1,
    "worker.jobMemoryMiB": 512,
    "worker.jobDeadlineSeconds": 7,
    "controller.replicas": 3,
    "networkPolicy.enabled": False,
    "networkPolicy.apiFrom": PEERS,
    "networkPolicy.metricsFrom": PEERS,
    "networkPolicy.apiEgress": EGRESS,
    "networkPolicy.workerEgress": EGRESS,
    "networkPolicy.controllerEgress": EGRESS,
    "networkPolicy.guardFrom": PEERS,
    "networkPolicy.guardEgress": EGRESS,
    "guard.enabled": False,
    "guard.apply": True,
    "guard.config": GUARD_FILE | {"row": "b"},
    "guard.service.port": 7,
    "guard.service.annotations": {"a": "b"},
    **{
        f"guard.{which}Token.{field}": "other"
        for which in ("agent", "budget", "api")
        for field in ("existingSecret", "key")
    },
    "agent.enabled": False,
    "agent.device": "amd",
    "agent.act": False,
    "agent.guarded": False,
    "agent.extraArgs": ["--safe-token", "0.8"],
    "agent.port": 7,
    "agent.network": "host",
    "agent.token.existingSecret": "other",
    "agent.token.key": "other",
    "agent.tls.existingSecret": "other",
    "agent.tls.serverName": "other",
    "agent.state.hostPath": "/var/lib/other",
    "agent.runtimeClassName": "nvidia",
    "agent.updateStrategy.maxUnavailable": "10%",
    "guard.agentTls.existingSecret": "other",
    "networkPolicy.agentFrom": PEERS,
    "networkPolicy.faultMonitorFrom": PEERS,
    "networkPolicy.remediationPeers": PEERS,
    "remediation.enabled": False,
    "remediation.act": True,
    "remediation.rayAddress": "other:6379",
    "remediation.runNamespace": "other",
    "remediation.periodSeconds": 7,
    "remediation.checkpointSeconds": 7,
    "remediation.extraArgs": ["--no-monitor"],
    "remediation.token.existingSecret": "other",
    "remediation.token.key": "other",
    "faultMonitor.enabled": False,
    "faultMonitor.job": JOB_FILE | {"nodes": 3},
    "faultMonitor.names": ["gpu-[1-2]"],
    "faultMonitor.service.port": 7,
    "faultMonitor.service.annotations": {"a": "b"},
    "faultMonitor.bundles.existingClaim": "other",
    "faultMonitor.bundles.sizeLimit": "7Gi",
    **{
        f"faultMonitor.{which}Token.{field}": "other"
        for which in ("recorder", "api")
        for field in ("existingSecret", "key")
    },
    "controller.enabled": False,
    "controller.observeOnly": True,
    "controller.periodSeconds": 7,
    "controller.kubernetes.enabled": True,
    "controller.kubernetes.namespaces": ["other"],
    "controller.kubernetes.scale": {"apps": ["deployments"]},
    "controller.kubernetes.drain": True,
    "controller.token.existingSecret": "other",
    "controller.token.key": "other",
    **{
        f"{component}.{field}": value
        for component in ("api", "worker", "controller", "guard", "agent", "faultMonitor", "remediation")
        for field, value in {
            "terminationGracePeriodSeconds": 77,
            "extraEnv": [{"name": "A", "value": "b"}],
            "resources": RESOURCES,
            "serviceAccount.create": False,
            "serviceAccount.name": "other",
            "serviceAccount.annotations": {"a": "b"},
            "podAnnotations": {"a": "b"},
            "podLabels": {"a": "b"},
            "priorityClassName": "other",
            "nodeSelector": {"a": "b"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
        }.items()
    },
    "api.topologySpreadConstraints": [{"maxSkew": 7}],
    "monitoring.serviceMonitor.enabled": False,
    "monitoring.serviceMonitor.interval": "7s",
    "monitoring.serviceMonitor.labels": {"a": "b"},
    "monitoring.prometheusRule.enabled": False,
    "monitoring.prometheusRule.labels": {"a": "b"},
    "monitoring.dashboards.enabled": False,
    "monitoring.dashboards.labels": {"a": "b"},
    "monitoring.dashboards.annotations": {"a": "b"},
}
CHANGED_TOGETHER = {"database.type": POSTGRES}  # it needs the name of a Secret


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
        ("image.digest=sha256:abc", "digest"),
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
        ("database.type=postgresql", "database.postgresql.urlSecret.name is empty"),
        ("database.postgresql.urlSecret.name=x", 'database.postgresql.urlSecret.name is "x", but'),
        ("migrations.urlSecret.name=x", 'migrations.urlSecret.name is "x", but database.type is sqlite'),
        (
            "database.type=postgresql,api.autoscaling.enabled=true,api.autoscaling.minReplicas=9",
            "api.autoscaling.minReplicas is 9: allowed are 1 to maxReplicas, 6",
        ),
        (
            "controller.kubernetes.enabled=true,controller.serviceAccount.create=false",
            "controller.kubernetes.enabled is true, but controller.serviceAccount.name is empty",
        ),
        ("worker.replicas=2", "worker.replicas is 2, but with database.type sqlite the API runs one worker itself"),
        ("worker.enabled=false", "worker.enabled is false, but with database.type sqlite no worker can run elsewhere"),
        ("worker.extraEnv[0].name=A", "worker.extraEnv is set, but with database.type sqlite"),
        ("worker.resources.limits.memory=null", "worker.resources.limits.memory is empty, but with database.type"),
        (
            "worker.jobMemoryMiB=2048",
            "limits.memory is 4500Mi, but worker.concurrency 2 and worker.jobMemoryMiB 2048 need 8492Mi",
        ),
        ("worker.extraEnv[0].name=FLEETWRIGHT_PLAN_CONCURRENCY", "worker.extraEnv sets FLEETWRIGHT_PLAN_CONCURRENCY"),
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
    """The schema closes objects with known fields, and passes objects without any to Kubernetes unchanged."""
    objects = [SCHEMA, *SCHEMA["$defs"].values()]
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
    node = SCHEMA["$defs"][node["$ref"].removeprefix("#/$defs/")] if "$ref" in node else node
    if "properties" not in node or path.endswith(".resources"):
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
