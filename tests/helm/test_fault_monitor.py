"""Tests the fault monitor in the chart: off by default, with valid files, reporting only if enabled."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli.app import app
from deploy.fault_monitor.job_config import JobConfig, NodeNames
from fleet.documents import parse_document, read_model
from tests.helm.chart import Object, container, kinds, one, render
from tests.testbed.helm import Helm, HelmError

JOB = {"name": "llm-7b", "nodes": 4, "ranks_per_node": 8}
ON = [
    *("--set-json", f"faultMonitors.llm-7b.job={json.dumps(JOB)}"),
    *("--set", "faultMonitors.llm-7b.recorderToken.existingSecret=recorders"),
]
NAMED = ["--set-json", 'faultMonitors.llm-7b.names=["gpu-[1-4]"]']
REPORTING = [*NAMED, "--set", "faultMonitors.llm-7b.apiToken.existingSecret=api"]


def config_file(objects: list[Object], name: str) -> str:
    text: str = one(objects, "ConfigMap", "-fault-monitor-llm-7b")["data"][name]
    return text


def arguments(objects: list[Object]) -> list[str]:
    found: list[str] = container(one(objects, "Deployment", "-fault-monitor-llm-7b"))["args"]
    return found


def test_the_fault_monitor_is_off_by_default(helm3: Helm) -> None:
    assert not [item for item in render(helm3) if "fault-monitor" in item["metadata"]["name"]]


def test_the_files_match_the_values(helm3: Helm) -> None:
    objects = render(helm3, *ON, *REPORTING)
    file = read_model(parse_document(config_file(objects, "job.json"), name="job.json"), JobConfig)
    assert (file.name, file.nodes, len(file.job().rank_node)) == ("llm-7b", 4, 32)
    names = read_model(parse_document(config_file(objects, "names.json"), name="names.json"), NodeNames)
    assert names.of(file) == ("gpu-1", "gpu-2", "gpu-3", "gpu-4")


@pytest.mark.parametrize("more", [[], REPORTING])
def test_the_command_line_accepts_every_argument_and_every_file_is_mounted(helm3: Helm, more: list[str]) -> None:
    objects = render(helm3, *ON, *more)
    args = arguments(objects)
    done = CliRunner().invoke(app, [*args, "--help"])
    assert done.exit_code == 0, done.output
    mounts = container(one(objects, "Deployment", "-fault-monitor-llm-7b"))["volumeMounts"]
    folders = {Path(mount["mountPath"]) for mount in mounts}
    files = [Path(argument) for argument in args if argument.startswith("/")]
    assert {path if path in folders else path.parent for path in files} <= folders
    assert "--token-file" in args
    assert ("--report" in args) is (REPORTING[-1] in more)


def test_the_fault_monitor_reports_to_the_api_and_reaches_no_other_service(helm3: Helm) -> None:
    objects = render(helm3, *ON, *REPORTING)
    args, api = arguments(objects), one(objects, "Service", "-api")
    url = args[args.index("--report") + 1]
    assert url == f"http://{api['metadata']['name']}:{api['spec']['ports'][0]['port']}"

    def ports(objects: list[Object]) -> set[int]:
        egress = one(objects, "NetworkPolicy", "-fault-monitor-llm-7b")["spec"]["egress"]
        return {each["port"] for rule in egress for each in rule["ports"]}

    assert (ports(objects), ports(render(helm3, *ON))) == ({53, 8400}, {53})


def test_recorders_may_send_from_the_namespace_of_the_job(helm3: Helm) -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "training"}}}]
    objects = render(helm3, *ON, "--set-json", f"networkPolicy.faultMonitorFrom={json.dumps(peers)}")
    (ingress,) = one(objects, "NetworkPolicy", "-fault-monitor-llm-7b")["spec"]["ingress"]
    assert peers[0] in ingress["from"]
    (port,) = container(one(objects, "Deployment", "-fault-monitor-llm-7b"))["ports"]
    assert [each["port"] for each in ingress["ports"]] == [port["containerPort"]] == [9404]
    (served,) = one(objects, "Service", "-fault-monitor-llm-7b")["spec"]["ports"]
    assert (served["port"], served["targetPort"]) == (9404, port["name"])


def test_one_replica_runs_at_a_time_and_restarts_when_a_file_changes(helm3: Helm) -> None:
    def deployment(*more: str) -> Object:
        return dict(one(render(helm3, *ON, *more), "Deployment", "-fault-monitor-llm-7b")["spec"])

    def checksum(*more: str) -> str:
        return str(deployment(*more)["template"]["metadata"]["annotations"]["checksum/config"])

    assert (deployment()["replicas"], deployment()["strategy"]) == (1, {"type": "Recreate"})
    assert checksum() == checksum()
    assert len({checksum(), checksum(*NAMED), checksum("--set", "faultMonitors.llm-7b.job.nodes=5")}) == 3


def test_bundles_persist_on_a_given_claim(helm3: Helm) -> None:
    def volume(*more: str) -> Object:
        pod = one(render(helm3, *ON, *more), "Deployment", "-fault-monitor-llm-7b")["spec"]["template"]["spec"]
        (found,) = (volume for volume in pod["volumes"] if volume["name"] == "bundles")
        return dict(found)

    assert volume()["emptyDir"] == {"sizeLimit": "1Gi"}
    assert volume("--set", "faultMonitors.llm-7b.bundles.existingClaim=proofs")["persistentVolumeClaim"] == {
        "claimName": "proofs"
    }


def test_the_fault_monitor_is_scraped_by_a_pod_monitor(helm3: Helm) -> None:
    objects = render(helm3, *ON, "--set", "monitoring.serviceMonitor.enabled=true")
    assert "PodMonitor" in kinds(objects)
    (endpoint,) = one(objects, "PodMonitor", "-fault-monitor-llm-7b")["spec"]["podMetricsEndpoints"]
    assert endpoint["path"] == "/metrics"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--set-json", "faultMonitors.llm-7b={}"], "faultMonitors.llm-7b.job has no nodes"),
        (
            [*ON, *REPORTING[2:]],
            "faultMonitors.llm-7b.apiToken.existingSecret is set, but faultMonitors.llm-7b.names is empty",
        ),
        ([*ON, "--set", "faultMonitors.llm-7b.jobs=5"], "dditional propert.*jobs"),
    ],
)
def test_inconsistent_values_are_refused(helm: Helm, given: list[str], message: str) -> None:
    with pytest.raises(HelmError, match=message):
        render(helm, *given)
