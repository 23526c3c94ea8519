"""`faults monitor` as a process: after a crash over HTTP and SIGTERM, the diagnosis and its bundle are written."""

import json
import signal
import sys
import time
from pathlib import Path

from faults.bundle import read_bundle
from fleetwright.telemetry.batch_format import PATH
from fleetwright.telemetry.batch_sender import HttpPoster
from tests.deploy.fault_monitor.batches import batches
from tests.faults.stories import Story
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.waiting import PATIENCE_S, wait_for

DIES = Story(nodes=4, gone=((5.1, 2),), end_s=6.0)
SECRET = "a-secret-for-one-test"
MONITOR = "from api.cli.faults.monitor import app; app()"


def test_the_bundle_is_written_after_sigterm(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    job, bundles, secret = tmp_path / "job.yaml", tmp_path / "bundles", tmp_path / "token"
    job.write_text("{name: job, nodes: 4}")
    secret.write_text(f"{SECRET}\n")
    argv: list[str | Path] = [sys.executable, "-c", MONITOR, job, "--port", str(port), "--token-file", secret]
    with Process.start([*argv, "--bundles", bundles], name="monitor", log_dir=tmp_path) as monitor:
        monitor.wait_ready(lambda: answers_ok(f"http://{LOOPBACK}:{port}/healthz"))
        headers = {"Authorization": f"Bearer {SECRET}"}
        poster = HttpPoster(f"http://{LOOPBACK}:{port}", path=PATH, headers=headers, timeout_s=PATIENCE_S)
        now_s = time.time()
        for body in batches(DIES.observations(), zero_s=now_s - DIES.end_s, sent_s=now_s):
            assert poster.post(body)[0] == 204
        poster.close()
        (line,) = wait_for(lambda: lines(monitor), what="diagnosis")
        monitor.popen.send_signal(signal.SIGTERM)
        assert monitor.popen.wait(timeout=PATIENCE_S) == 0
    assert (line["class"], line["node"]) == ("crash", 2)
    (bundle,) = bundles.glob("*.bundle.jsonl")
    assert read_bundle(bundle.read_text().splitlines()).holds


def lines(monitor: Process) -> list[dict[str, object]]:
    return [json.loads(line) for line in monitor.log_path.read_text().splitlines() if line.startswith('{"job"')]
