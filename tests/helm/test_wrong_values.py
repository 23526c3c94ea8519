"""Thirty wrong values files: Helm refuses each with the key, before any object reaches the cluster."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.chart import render
from tests.testbed.helm import Helm, HelmError

GUARD: dict[str, Any] = {"agentToken": {"existingSecret": "agents"}, "config": {"settings": {"rating_w": 9000}}}
AGENT = {"name": "n1", "url": "http://n1.invalid:9403"}
JOB: dict[str, Any] = {"job": {"nodes": 2}, "recorderToken": {"existingSecret": "recorders"}}
RAY = {"rayAddress": "head:6379", "rayPeers": [{"podSelector": {}}]}


def guard(**config: Any) -> dict[str, Any]:
    return {"powerGuards": {"row-a": GUARD | {"config": GUARD["config"] | config}}}


def fault_monitor(**values: Any) -> dict[str, Any]:
    return {"faultMonitors": {"llm": JOB | values}}


def remediator(**values: Any) -> dict[str, Any]:
    return {"remediators": {"train": RAY | values}}


def agent(**values: Any) -> dict[str, Any]:
    return {"agent": {"enabled": True, "token": {"existingSecret": "agents"}} | values}


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("agents-are-a-string", guard(agents="n[1-8]"), "agents"),
    ("negative-rating", guard(agents=[AGENT], settings={"rating_w": -1}), "rating_w"),
    ("the-same-agent-twice", guard(agents=[AGENT, AGENT]), r'powerGuards\.row-a\.config\.agents: "n1" is there twice'),
    ("agent-without-a-url", guard(agents=[{"name": "n1"}]), "url"),
    ("misspelt-guard-setting", guard(agents=[AGENT], settings={"rating_w": 9000, "perod_s": 2}), "perod_s"),
    ("mode-of-the-guard-in-its-file", guard(agents=[AGENT], mode="apply"), "mode"),
    ("guard-without-agents", {"powerGuards": {"row-a": GUARD}}, r"powerGuards\.row-a has no agents"),
    ("name-of-a-row-with-capitals", {"powerGuards": {"Row_A": GUARD}}, "Row_A"),
    ("fewer-names-than-nodes", fault_monitor(names=["gpu-1"]), r"faultMonitors\.llm\.names has 1 names: .* 2"),
    ("job-with-an-unknown-field", fault_monitor(job={"nodes": 2, "gpus": 8}), "gpus"),
    ("job-without-nodes", fault_monitor(job={}), r"faultMonitors\.llm\.job has no nodes"),
    ("too-many-ranks", fault_monitor(job={"nodes": 2, "ranks_per_node": 65}), "ranks_per_node"),
    ("port-of-ray-out-of-range", remediator(rayAddress="head:99999"), "rayAddress"),
    ("misspelt-ray-peer", remediator(rayPeers=[{"podSelektor": {}}]), "podSelektor"),
    ("act-as-an-extra-argument-of-remediation", remediator(extraArgs=["--act"]), "extraArgs"),
    ("act-as-an-extra-argument-of-the-agent", agent(extraArgs=["--act"]), "extraArgs"),
    ("unknown-eviction", remediator(kubernetes={"enabled": True, "evict": "all"}), "evict"),
    ("agent-port-out-of-range", agent(port=70000), "port"),
    ("misspelt-toleration", {"api": {"tolerations": [{"key": "a", "efect": "NoSchedule"}]}}, "efect"),
    ("misspelt-affinity", {"api": {"affinity": {"nodeAfinity": {}}}}, "nodeAfinity"),
    ("misspelt-spread", {"controller": {"topologySpreadConstraints": [{"maxSkw": 1}]}}, "maxSkw"),
    ("misspelt-network-peer", {"networkPolicy": {"apiFrom": [{"namespaceSelctor": {}}]}}, "namespaceSelctor"),
    ("misspelt-egress-rule", {"networkPolicy": {"apiEgress": [{"port": [{"port": 5432}]}]}}, "port"),
    ("user-as-a-word", {"podSecurityContext": {"runAsUser": "nobody"}}, "runAsUser"),
    ("memory-limit-below-the-request",
     {"controller": {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}}},
     r"controller\.resources\.requests\.memory is 2Gi: allowed is at most its limit, 1Gi"),
    ("disruption-budget-of-everything", {"api": {"podDisruptionBudget": {"maxUnavailable": "100%"}}}, "maxUnavailable"),
    ("one-account-for-two-components",
     {"api": {"serviceAccount": {"name": "fleet"}},
      "controller": {"kubernetes": {"enabled": True}, "serviceAccount": {"name": "fleet"}}},
     r'serviceAccount\.name "fleet" is that of api, controller'),
    ("no-api-at-all", {"api": {"enabled": False}}, r"externalApi\.url is empty: controller needs an API"),
    ("external-api-without-a-token",
     {"api": {"enabled": False}, "externalApi": {"url": "https://fleet.example.invalid"}},
     r"externalApi\.tokenSecret\.name is empty: controller needs a token"),
    ("external-api-without-a-scheme", {"api": {"enabled": False}, "externalApi": {"url": "fleet.invalid"}}, "url"),
    ("router-with-a-misspelt-field",
     {"router": {"enabled": True, "config": {"engine": {}}, "table": {"configMap": "table"}}}, "engine"),
    ("switch-as-a-word", {"monitoring": {"serviceMonitor": {"enabled": "yes"}}}, "enabled"),
    ("ingress-without-a-host", {"api": {"ingress": {"enabled": True}}}, r"api\.ingress\.host is empty"),
    ("certificates-without-an-issuer", {"certManager": {"enabled": True}}, r"certManager\.issuerRef\.name is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "message"), [pytest.param(*rest, id=name) for name, *rest in WRONG])
def test_a_wrong_values_file_is_refused_with_the_key(
    helm3: Helm, tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(HelmError, match=message):
        render(helm3, "--values", path)


def test_the_right_values_of_the_same_form_are_accepted(helm3: Helm, tmp_path: Path) -> None:
    """Without this, a typing error in the tests above would count as a refusal."""
    right = guard(agents=[AGENT]) | fault_monitor(names=["gpu-1", "gpu-2"]) | remediator() | agent()
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(right))
    assert render(helm3, "--values", path)
