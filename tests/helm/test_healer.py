"""The healer in the chart: off by default, only saying what it would do unless told, on a Ray cluster it may reach."""

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
from deploy.remediation.cluster_interface import Sight
from deploy.remediation.fleet_snapshot import look_of
from deploy.remediation.ray_nodes import RayNode
from faults.quarantine.failure_domains import Groups, groups_of
from faults.quarantine.inputs import Member
from tests.helm.chart import POSTGRES, Object, container, environment, one, pod_templates, render
from tests.helm.test_templates import KUBERNETES_VERSIONS, PROMETHEUS_OPERATOR
from tests.testbed.helm import Helm, HelmError

RAY_PODS: Object = {"podSelector": {"matchLabels": {"ray.io/cluster": "train"}}}
MONITORING: Object = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
PEERS = ["--set-json", f"networkPolicy.healerPeers={json.dumps([RAY_PODS])}"]
AT = ["--set", "healer.enabled=true", "--set", "healer.rayAddress=train-head-svc:6379"]
ON = [*AT, *PEERS]
SPOKEN = '#!/bin/sh\nprintf "%s\\n" "$(basename "$0")" "$@" --end--\n'


def spoken(objects: list[Object], folder: Path) -> list[list[str]]:
    """What the container's own command runs, in order, with programs that only say how they were called."""
    for name in ("ray", "fleetwright"):
        program = folder / name
        program.write_text(SPOKEN)
        program.chmod(0o755)
    healer = one(objects, "Deployment", "-healer")
    plain = {name: value for name, value in environment(healer).items() if isinstance(value, str)}
    told = container(healer)
    done = subprocess.run(
        [*told["command"], *told["args"]],
        capture_output=True,
        text=True,
        check=True,
        env=plain | {"POD_IP": "10.0.0.7", "PATH": f"{folder}:{os.environ['PATH']}"},
    )
    return [part.split("\n") for part in done.stdout.strip().removesuffix("\n--end--").split("\n--end--\n")]


def test_it_is_off_by_default(helm3: Helm) -> None:
    assert not [item for item in render(helm3) if "healer" in item["metadata"]["name"]]


@pytest.mark.parametrize("more", [[], ["--set", "healer.act=true", "--set", "healer.extraArgs={--no-watch}"]])
def test_it_joins_the_cluster_and_then_heals(helm3: Helm, tmp_path: Path, more: list[str]) -> None:
    joins, heals = spoken(render(helm3, *ON, *more), tmp_path)
    assert joins[:2] == ["ray", "start"]
    assert {"--address=train-head-svc:6379", "--node-ip-address=10.0.0.7", "--num-cpus=0", "--num-gpus=0"} <= set(joins)
    known = ClickRunner().invoke(ray_cli, [*joins[1:], "--help"])
    assert known.exit_code == 0, known.output
    assert heals[:5] == ["fleetwright", "heal", "run", "--address", "train-head-svc:6379"]
    done = CliRunner().invoke(app, [*heals[1:], "--help"])
    assert done.exit_code == 0, done.output
    assert (("--act" in heals), heals[-1] == "--no-watch") == (bool(more), bool(more))


def test_its_node_is_no_spare_and_counts_against_nobodys_budget(helm3: Helm, tmp_path: Path) -> None:
    joins, _heals = spoken(render(helm3, *ON), tmp_path)
    (labels,) = (word.removeprefix("--labels=") for word in joins if word.startswith("--labels="))
    said = dict(label.split("=") for label in labels.split(","))
    nodes = RayNode(id="1", name="healer", labels=said), RayNode(id="2", name="gpu-1")
    look = look_of(Sight(nodes=nodes, runs=()), out=frozenset(), probed={})
    members = {name: Member(seen.pool, seen.domains, absent=seen.absent) for name, seen in look.members.items()}
    groups = Groups(members, out=frozenset())
    assert [groups.lacking[group] for group in groups_of(members["gpu-1"])] == [0]
    assert look.spares == {members["gpu-1"].pool: 1}


def test_it_knows_the_api_of_the_release_and_a_token(helm3: Helm, tmp_path: Path) -> None:
    objects = render(helm3, *ON, "--set", "healer.token.existingSecret=healer", "--set", "healer.token.key=own")
    _joins, heals = spoken(objects, tmp_path)
    service = one(objects, "Service", "-api")
    assert heals[heals.index("--url") + 1] == f"http://{service['metadata']['name']}:8400"
    spec = one(objects, "Deployment", "-healer")["spec"]["template"]["spec"]
    (token,) = (volume["secret"] for volume in spec["volumes"] if "secret" in volume)
    assert (token["secretName"], token["items"]) == ("healer", [{"key": "own", "path": "token"}])
    (mount,) = (
        mount for mount in container(one(objects, "Deployment", "-healer"))["volumeMounts"] if mount["name"] == "token"
    )
    assert heals[heals.index("--token-file") + 1] == f"{mount['mountPath']}/token"


def test_it_says_how_it_is_where_it_is_asked(helm3: Helm, tmp_path: Path) -> None:
    objects = render(helm3, *ON, "--set", "bindAddress=::", profile=POSTGRES)
    _joins, heals = spoken(objects, tmp_path)
    healer = container(one(objects, "Deployment", "-healer"))
    ((name, port),) = ((each["name"], each["containerPort"]) for each in healer["ports"])
    assert heals[heals.index("--metrics-host") + 1 :][:3] == ["::", "--metrics-port", str(port)]
    probes = [healer[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")]
    assert {(each["httpGet"]["path"], each["httpGet"]["port"]) for each in probes} == {("/healthz", name)}
    assert probes[0]["periodSeconds"] * probes[0]["failureThreshold"] >= 120  # Ray starts, joins, and is joined
    monitor = one(objects, "PodMonitor", "-healer")["spec"]
    labels = one(objects, "Deployment", "-healer")["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert [(each["port"], each["path"]) for each in monitor["podMetricsEndpoints"]] == [(name, "/metrics")]


def test_it_reaches_the_api_and_its_cluster_and_others_reach_its_metrics_alone(helm3: Helm) -> None:
    objects = render(helm3, *ON, "--set-json", f"networkPolicy.metricsFrom={json.dumps([MONITORING])}")
    policy = one(objects, "NetworkPolicy", "-healer")["spec"]
    cluster, metrics = policy["ingress"]
    assert cluster == {"from": [RAY_PODS]}
    assert metrics == {"from": [{"podSelector": {}}, MONITORING], "ports": [{"protocol": "TCP", "port": 9407}]}
    dns, api, cluster = policy["egress"]
    assert ({each["port"] for each in dns["ports"]}, [each["port"] for each in api["ports"]]) == ({53}, [8400])
    assert cluster == {"to": [RAY_PODS]}


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_its_objects_are_valid_and_its_pod_is_restricted(helm3: Helm, version: str) -> None:
    objects = [item for item in render(helm3, *ON, profile=POSTGRES) if item["metadata"]["name"].endswith("-healer")]
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
        (["--set", "healer.enabled=true", *PEERS], "healer.rayAddress is empty"),
        (AT, "networkPolicy.healerPeers is empty"),
        ([*ON, "--set", "healer.rayAddress=ray://train:10001"], "rayAddress"),
        ([*ON, "--set", "healer.periodSeconds=0"], "periodSeconds"),
    ],
)
def test_what_does_not_fit_is_named(helm: Helm, given: list[str], message: str) -> None:
    with pytest.raises(HelmError, match=message):
        render(helm, *given)


def test_no_peers_are_needed_where_there_is_no_policy(helm3: Helm) -> None:
    assert one(render(helm3, *AT, "--set", "networkPolicy.enabled=false"), "Deployment", "-healer")
