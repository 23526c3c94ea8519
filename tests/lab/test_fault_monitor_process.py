"""Tests the whole chain: ranks send to recorders, recorders to a fault monitor process, which names the fault."""

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from faults.bundle import read_bundle
from tests.testbed.lab.experiment import Experiment
from tests.testbed.lab.injections import Injection
from tests.testbed.lab.session import run_experiment
from tests.testbed.lab.workload import LibraryName, Workload
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.lab

RANKS = 4
AT_S = 5.1
HANG_S = 3.0
ON_ITS_WAY_S = 1.0  # over HTTP from the recorders; the documented bound covers the fault monitor only
WATCH = "from api.cli.faults.monitor import app; app()"


def test_the_fault_monitor_process_diagnoses_a_frozen_rank_and_stores_a_bundle(
    tmp_path: Path, library: LibraryName, torch_python: Path | None
) -> None:
    (port,) = free_ports(1)
    job, bundles = tmp_path / "job.yaml", tmp_path / "bundles"
    job.write_text(yaml.safe_dump({"name": "lab", "nodes": RANKS}))
    argv: list[str | Path] = [sys.executable, "-c", WATCH, job, "--port", str(port), "--bundles", bundles]
    frozen = Injection(kind="stop", at_s=AT_S, node=2)
    workload = Workload(ranks=RANKS, duration_s=AT_S + HANG_S + ON_ITS_WAY_S + 0.5, library=library, seed=21)
    experiment = Experiment(name="frozen", workload=workload, injections=(frozen,))
    url = f"http://{LOOPBACK}:{port}"
    with Process.start(argv, name="fault-monitor", log_dir=tmp_path) as monitor:
        monitor.wait_ready(lambda: answers_ok(f"{url}/healthz"))
        ran = run_experiment(experiment, folder=tmp_path / "run", python=torch_python, watcher_url=url)
        (bundle,) = wait_for(lambda: list(bundles.glob("*.bundle.jsonl")), what="bundle")
    found = diagnoses(monitor.log_path)
    named = next(diagnosis for diagnosis in found if diagnosis["class"] == "noncomm-hang")
    assert (named["node"], named["isolate"]) == (2, True)
    onset_s = ran.truth["t_go"] + ran.done_s[frozen]
    assert 0.0 < datetime.fromisoformat(named["at"]).timestamp() - onset_s <= HANG_S + ON_ITS_WAY_S
    assert [diagnosis for diagnosis in found if diagnosis.get("isolate") and diagnosis["node"] != 2] == []
    assert read_bundle(bundle.read_text().splitlines()).holds


def diagnoses(log: Path) -> list[dict[str, Any]]:
    """Return the lines of JSON in the process's output."""
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith('{"job"')]
