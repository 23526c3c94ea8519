"""`faults forward` as a process: killed within an attempt, its successor drains the node no second time."""

import os
import signal
import sys
from pathlib import Path

import pytest

from api.schemas.faults import DiagnosisReport
from api.schemas.health_events import DeliveryState
from faults.diagnosis import Diagnosis, FaultClass, Scope
from faults.quarantine import PolicyMode, QuarantineRules
from tests.deploy.health_events.fake_scontrol import FakeScontrol
from tests.deploy.health_events.receiver import KEY, webhook_receiver
from tests.testbed.processes import Process
from tests.testbed.server import ADMIN_TOKEN, StartServer
from tests.testbed.waiting import wait_for

STOPPED = Diagnosis(
    fault=FaultClass.NONCOMM_HANG,
    scope=Scope.NODE,
    node=1,
    onset_s=1.0,
    detected_s=2.0,
    isolate=True,
    confidence=0.99,
    reason="stopped",
    evidence=("process", "standstill"),
)


@pytest.mark.timeout(300)
def test_a_forwarder_killed_within_a_drain_is_continued_without_a_second_one(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(f"sqlite+aiosqlite:///{tmp_path}/service.db")
    slurm = FakeScontrol(tmp_path)
    slurm.write("gpu-1 gpu-2")
    slurm.hang_after_updates()
    secret, token = tmp_path / "secret", tmp_path / "admin"
    secret.write_bytes(KEY)
    token.write_text(ADMIN_TOKEN)
    with server.client() as api, webhook_receiver() as receiver:
        rules = QuarantineRules(mode=PolicyMode.APPLY, without_spare=True)
        api.replace_quarantine_rules(rules, if_match=api.get_quarantine_rules().etag)
        argv: list[str | Path] = [
            sys.executable,
            "-m",
            "api.cli",
            "faults",
            "forward",
            "--act",
            "--evaluate",
            "--slurm",
        ]
        argv += ["--scontrol", slurm.command, "--nodes-from", "slurm", "--webhook", receiver.url, "--metrics-port", "0"]
        argv += ["--webhook-secret-file", secret, "--url", server.url, "--token-file", token, "--period-s", "0.2"]
        with Process.start(argv, name="first", log_dir=tmp_path) as first:
            api.report_diagnosis(DiagnosisReport(job="llm", diagnosis=STOPPED, nodes={"1": "gpu-1"}, expires_in_s=300))
            wait_for(slurm.updates, what="a drain")
            os.kill(first.pid, signal.SIGKILL)
        slurm.hang_after_updates(hang=False)
        with Process.start(argv, name="second", log_dir=tmp_path):
            wait_for(
                lambda: [each.delivery.state for each in api.iter_health_events()],
                lambda states: states == [DeliveryState.DELIVERED] * 2,
                what="both deliveries",
            )
        entries = [each.action for each in api.iter_audit() if each.action.startswith("health-event.")]
    assert (slurm.updates(), receiver.states()) == (["gpu-1 drain"], ["gpu-1 out-of-service"])
    assert all(right for _id, right in receiver.attempts)
    assert entries.count("health-event.requested") == 2
