"""`fleetwright remediate` without a cluster: cases are listed and shown, and invalid hooks are refused."""

import json
import socket
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from api.cli.remediate import run
from api.client import Client
from api.schemas.remediation import CaseSpec
from tests.testbed.cli import Cli, Done
from tests.testbed.processes import LOOPBACK, free_ports
from tests.testbed.server import ADMIN_TOKEN

AT = "2026-11-23T12:00:00Z"
CASE = {
    "node": "gpu-3",
    "diagnosis_id": "v-1",
    "state": "quarantined",
    "stage": "replaced",
    "since": AT,
    "opened_at": AT,
    "runs": [
        {"run": "llm", "attempt": 1, "workers": 2, "checkpoint_step": 9, "resumed_attempt": 2, "resumed_step": 19},
        {"run": "old", "attempt": 4, "workers": 1, "over": True},
    ],
    "message": "out; probed when its cooldown is over",
    "actions": [{"at": AT, "action": "drain", "detail": "id-3"}],
}


def test_cases_are_listed_and_shown_with_every_action(remote: Cli, service: str) -> None:
    with Client(service, token=ADMIN_TOKEN) as client:
        client.open_remediation_case("v-1", CaseSpec.model_validate(CASE))
    (row,) = remote("remediate", "cases").stdout.splitlines()[1:]
    assert row.split()[:4] == ["v-1", "gpu-3", "quarantined", "replaced"]
    shown = remote("remediate", "case", "v-1").stdout
    assert "run llm: 2 worker(s), checkpoint 9; resumed at step 19" in shown
    assert "run old: 1 worker(s), checkpoint None; over" in shown
    assert "2026-11-23 12:00:00Z  drain  id-3" in shown
    found = json.loads(remote("remediate", "case", "v-1", "--format", "json").stdout)
    assert found["case"]["actions"][0]["action"] == "drain"
    assert remote("remediate", "cases", "--format", "json").json == [found]


def test_a_missing_case_is_reported_in_one_line(remote: Cli) -> None:
    done: Done = remote("remediate", "case", "v-2")
    assert (done.code, "remediation case 'v-2'" in done.refused[0]) == (1, True)


@pytest.mark.parametrize("hook", ["restart=true", "replace", "replace= "])
def test_an_invalid_hook_is_refused(cli: Cli, hook: str) -> None:
    done = cli("remediate", "run", "--hook", hook)
    assert (done.code, done.refused[0]) == (
        2,
        f"--hook {hook}: expected NAME=COMMAND, NAME one of replace, probe-only, release",
    )


def test_on_kubernetes_the_hooks_are_others_and_the_cluster_must_exist(cli: Cli, tmp_path: Path) -> None:
    done = cli("remediate", "kubernetes", "--hook", "probe-only=true")
    expected = "--hook probe-only=true: expected NAME=COMMAND, NAME one of replace, probe, release"
    assert (done.code, done.refused) == (2, [expected])
    done = cli("remediate", "kubernetes", "--metrics-port", "0", "--kubeconfig", str(tmp_path / "none"))
    line = done.stderr.splitlines()[-1]  # after a log line of the client
    assert (done.code, line.startswith(f"fleetwright: kubeconfig {tmp_path / 'none'}: ")) == (2, True)


def test_without_ray_one_line_names_the_extra_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    done = cli("remediate", "run")
    assert (done.code, done.refused) == (2, ["joining a Ray cluster needs an extra: pip install 'fleetwright[ray]'"])


def test_an_unreachable_cluster_is_reported(cli: Cli) -> None:
    pytest.importorskip("ray", reason="Ray is not installed", exc_type=ImportError)
    (port,) = free_ports(1)
    done = cli("remediate", "run", "--address", f"{LOOPBACK}:{port}")
    (line,) = done.refused
    assert (done.code, line.startswith(f"no Ray cluster at {LOOPBACK}:{port}: ")) == (1, True)


def test_a_metrics_port_in_use_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "joined", lambda _address, _namespace: nullcontext())
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        done = cli("remediate", "run", "--metrics-port", str(port))
    assert (done.code, done.refused) == (
        2,
        [f"cannot serve /metrics on {LOOPBACK} port {port}: Address already in use"],
    )
