"""Tests the remediation controller in the chart: off by default, without --act by default, with a Ray cluster."""

import json
import os
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
from click.testing import CliRunner as ClickRunner
from ray.scripts.scripts import cli as ray_cli
from typer.testing import CliRunner

from api.cli.app import app
from deploy.remediation.cluster_interface import ClusterSnapshot, RayNode, evaluation_of
from faults.quarantine.guardrails import Groups, groups_of
from faults.quarantine.inputs import Member
from tests.helm.chart import POSTGRES, Object, container, environment, one, pod_templates, render
from tests.helm.test_templates import KUBERNETES_VERSIONS, PROMETHEUS_OPERATOR
from tests.testbed.helm import Helm, HelmError

RAY_PODS: Object = {"podSelector": {"matchLabels": {"ray.io/cluster": "train"}}}
MONITORING: Object = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
PEERS = ["--set-json", f"remediators.train.rayPeers={json.dumps([RAY_PODS])}"]
AT = ["--set", "remediators.train.rayAddress=train-head-svc:6379"]
ON = [*AT, *PEERS]
ECHO = '#!/bin/sh\nprintf "%s\\n" "$(basename "$0")" "$@" --end--\n'


def commands(objects: list[Object], folder: Path) -> list[list[str]]:
    """Return the container's commands in order, with programs that print their arguments."""
    for name in ("ray", "fleetwright"):
        program = folder / name
        program.write_text(ECHO)
        program.chmod(0o755)
    controller = one(objects, "Deployment", "-remediation-train")
    plain = {name: value for name, value in environment(controller).items() if isinstance(value, str)}
    controller_container = container(controller)
    done = subprocess.run(
        [*controller_container["command"], *controller_container["args"]],
        capture_output=True,
        text=True,
        check=True,
        env=plain | {"POD_IP": "10.0.0.7", "PATH": f"{folder}:{os.environ['PATH']}"},
    )
    return [part.split("\n") for part in done.stdout.strip().removesuffix("\n--end--").split("\n--end--\n")]


def test_remediation_is_off_by_default(helm3: Helm) -> None:
    assert not [item for item in render(helm3) if "remediation" in item["metadata"]["name"]]


@pytest.mark.parametrize(
    "more", [[], ["--set", "remediators.train.act=true", "--set", "remediators.train.extraArgs={--no-monitor}"]]
)
def test_the_pod_joins_the_ray_cluster_before_the_controller_starts(
    helm3: Helm, tmp_path: Path, more: list[str]
) -> None:
    joins, runs = commands(render(helm3, *ON, *more), tmp_path)
    assert joins[:2] == ["ray", "start"]
    assert {"--address=train-head-svc:6379", "--node-ip-address=10.0.0.7", "--num-cpus=0", "--num-gpus=0"} <= set(joins)
    known = ClickRunner().invoke(ray_cli, [*joins[1:], "--help"])
    assert known.exit_code == 0, known.output
    assert runs[:5] == ["fleetwright", "remediate", "run", "--address", "train-head-svc:6379"]
    done = CliRunner().invoke(app, [*runs[1:], "--help"])
    assert done.exit_code == 0, done.output
    assert (("--act" in runs), runs[-1] == "--no-monitor") == (bool(more), bool(more))


def test_the_node_of_the_controller_is_no_spare_and_not_counted_in_budgets(helm3: Helm, tmp_path: Path) -> None:
    joins, _runs = commands(render(helm3, *ON), tmp_path)
    (labels,) = (argument.removeprefix("--labels=") for argument in joins if argument.startswith("--labels="))
    labels_of_node = dict(label.split("=") for label in labels.split(","))
    nodes = RayNode(id="1", name="remediation", labels=labels_of_node), RayNode(id="2", name="gpu-1")
    evaluation = evaluation_of(ClusterSnapshot(nodes=nodes, runs=()), out=frozenset(), probed={})
    members = {
        name: Member(member.pool, member.domains, absent=member.absent) for name, member in evaluation.members.items()
    }
    groups = Groups(members, out=frozenset())
    assert [groups.out[group] for group in groups_of(members["gpu-1"])] == [0]
    assert evaluation.spares == {members["gpu-1"].pool: 1}


def test_the_controller_has_the_url_and_a_token_of_the_api(helm3: Helm, tmp_path: Path) -> None:
    objects = render(
        helm3,
        *ON,
        "--set",
        "remediators.train.token.existingSecret=remediation",
        "--set",
        "remediators.train.token.key=own",
    )
    _joins, runs = commands(objects, tmp_path)
    service = one(objects, "Service", "-api")
    assert runs[runs.index("--url") + 1] == f"http://{service['metadata']['name']}:8400"
    spec = one(objects, "Deployment", "-remediation-train")["spec"]["template"]["spec"]
    (token,) = (volume["secret"] for volume in spec["volumes"] if "secret" in volume)
    assert (token["secretName"], token["items"]) == ("remediation", [{"key": "own", "path": "token"}])
    (mount,) = (
        mount
        for mount in container(one(objects, "Deployment", "-remediation-train"))["volumeMounts"]
        if mount["name"] == "token"
    )
    assert runs[runs.index("--token-file") + 1] == f"{mount['mountPath']}/token"


def test_probes_and_monitor_use_the_metrics_port(helm3: Helm, tmp_path: Path) -> None:
    objects = render(helm3, *ON, "--set", "bindAddress=::", profile=POSTGRES)
    _joins, runs = commands(objects, tmp_path)
    controller = container(one(objects, "Deployment", "-remediation-train"))
    ((name, port),) = ((each["name"], each["containerPort"]) for each in controller["ports"])
    assert runs[runs.index("--metrics-host") + 1 :][:3] == ["::", "--metrics-port", str(port)]
    probes = [controller[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")]
    assert {(each["httpGet"]["path"], each["httpGet"]["port"]) for each in probes} == {("/healthz", name)}
    assert (
        probes[0]["periodSeconds"] * probes[0]["failureThreshold"] >= 120
    )  # Ray starts and joins the cluster, then the controller joins Ray
    monitor = one(objects, "PodMonitor", "-remediation-train")["spec"]
    labels = one(objects, "Deployment", "-remediation-train")["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert [(each["port"], each["path"]) for each in monitor["podMetricsEndpoints"]] == [(name, "/metrics")]


def test_the_network_policy_allows_the_api_the_ray_cluster_and_scrapes(helm3: Helm) -> None:
    objects = render(helm3, *ON, "--set-json", f"networkPolicy.metricsFrom={json.dumps([MONITORING])}")
    policy = one(objects, "NetworkPolicy", "-remediation-train")["spec"]
    cluster, metrics = policy["ingress"]
    assert cluster == {"from": [RAY_PODS]}
    assert metrics == {"from": [{"podSelector": {}}, MONITORING], "ports": [{"protocol": "TCP", "port": 9407}]}
    dns, api, cluster = policy["egress"]
    assert ({each["port"] for each in dns["ports"]}, [each["port"] for each in api["ports"]]) == ({53}, [8400])
    assert cluster == {"to": [RAY_PODS]}


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_the_objects_are_valid_and_the_pod_is_restricted(helm3: Helm, version: str) -> None:
    objects = [
        item for item in render(helm3, *ON, profile=POSTGRES) if item["metadata"]["name"].endswith("-remediation-train")
    ]
    assert {item["kind"] for item in objects} == {"Deployment", "NetworkPolicy", "PodMonitor", "ServiceAccount"}
    for item in (item for item in objects if item["apiVersion"] != PROMETHEUS_OPERATOR):
        assert kubernetes_validate.validate(item, version, strict=True) == version
    ((_name, template),) = pod_templates(objects)
    context = template["spec"]["containers"][0]["securityContext"]
    assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert template["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (PEERS, "remediators.train.rayAddress is empty"),
        (AT, "remediators.train.rayPeers is empty"),
        ([*ON, "--set", "remediators.train.rayAddress=ray://train:10001"], "rayAddress"),
        ([*ON, "--set", "remediators.train.periodSeconds=0"], "periodSeconds"),
    ],
)
def test_inconsistent_values_are_refused(helm: Helm, given: list[str], message: str) -> None:
    with pytest.raises(HelmError, match=message):
        render(helm, *given)


def test_without_a_network_policy_no_peers_are_required(helm3: Helm) -> None:
    assert one(render(helm3, *AT, "--set", "networkPolicy.enabled=false"), "Deployment", "-remediation-train")
