"""Tests the recorder sidecar of docs/how-to/monitor-faults-on-kubernetes.md: valid, restricted, with a script."""

import os
import re
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from api.cli.app import app
from deploy.fault_monitor.job_config import JobConfig
from deploy.telemetry.peers import parse_peers
from tests.helm.chart import Object, one, render
from tests.helm.test_templates import KUBERNETES_VERSIONS
from tests.testbed.helm import Helm

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "monitor-faults-on-kubernetes.md"
RUN = "/run/fleetwright"
GETENT = '#!/bin/sh\necho "10.0.0.${2%%.*}  $2.training.svc.cluster.local" | sed "s/llm-7b-//"\n'
FLEETWRIGHT = '#!/bin/sh\nprintf "%s\\n" "$@"\n'


def blocks() -> list[list[Object]]:
    found = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [list(yaml.safe_load_all(text)) for text in found]


VALUES, MANIFEST = blocks()
POD: Object = one(MANIFEST, "Job")["spec"]["template"]["spec"]
(RECORDER,) = POD["initContainers"]
(RANKS,) = POD["containers"]


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_every_object_is_valid_for_kubernetes(version: str) -> None:
    for item in MANIFEST:
        assert kubernetes_validate.validate(item, version, strict=True) == version


def test_the_pod_meets_the_restricted_standard() -> None:
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in (RECORDER, RANKS):
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert each["securityContext"]["allowPrivilegeEscalation"] is False
    assert not {"hostNetwork", "hostPID", "shareProcessNamespace"} & POD.keys()


def test_both_containers_mount_the_inbox_and_the_sidecar_ends_with_the_job() -> None:
    assert RECORDER["restartPolicy"] == "Always"
    for each in (RECORDER, RANKS):
        assert {"name": "inbox", "mountPath": RUN} in each["volumeMounts"]
    (place,) = (each["value"] for each in RANKS["env"] if each["name"] == "FLEETWRIGHT_COLLECTIVES")
    assert f"--inbox {place.removeprefix('unix:')} " in RECORDER["args"][0]


def test_the_script_finds_all_peers_and_starts_a_recorder(tmp_path: Path) -> None:
    for name, text in (("getent", GETENT), ("fleetwright", FLEETWRIGHT)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (script,) = RECORDER["args"]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "JOB_COMPLETION_INDEX": "2"}
    argv = [*RECORDER["command"], script.replace(RUN, str(tmp_path))]
    arguments = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout.split()
    peers = parse_peers((tmp_path / "peers").read_text())
    assert dict(peers.node_of) == {f"10.0.0.{index}": index for index in range(4)}
    assert arguments[arguments.index("--node") + 1] == "2"
    done = CliRunner().invoke(app, [*arguments, "--help"])
    assert done.exit_code == 0, done.output


def test_the_recorder_sends_to_the_fault_monitor_of_the_values(helm3: Helm, tmp_path: Path) -> None:
    (values,) = VALUES
    profile = tmp_path / "monitor.yaml"
    profile.write_text(yaml.safe_dump(values))
    objects = render(helm3, release="fleetwright", profile=profile)
    service = one(objects, "Service", "-fault-monitor-llm-7b")
    url = f"http://{service['metadata']['name']}.fleetwright:{service['spec']['ports'][0]['port']}"
    assert f"--send {url} " in RECORDER["args"][0]
    job = JobConfig.model_validate(values["faultMonitors"]["llm-7b"]["job"])
    assert (job.nodes, job.ranks_per_node) == (one(MANIFEST, "Job")["spec"]["completions"], 8)
    assert "--ranks-per-node 8 " in RECORDER["args"][0]
