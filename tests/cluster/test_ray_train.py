"""Tests the monitoring of a real job of Ray Train v2: the reports of its workers, and the diagnoses.

The cluster's nodes are one machine, so the workers are ranks of one node, with one recorder.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.train_job import BETWEEN_REPORTS, TrainJob
from tests.testbed.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.ray

NODE = "127.0.1.1=0"  # an unused address: the sockets of Ray's daemons do not belong to the job
RANKS = 2
EVERY = ["barrier"] * BETWEEN_REPORTS + ["report"]
STEPS_AGAIN = len(EVERY)  # collectives after the restart


@dataclass(frozen=True)
class MonitoredJob:
    """Names a recorder and a fault monitor, and their files."""

    folder: Path
    inbox: Path
    log: Path

    def diagnoses(self) -> list[dict[str, Any]]:
        """Return the fault monitor's diagnoses so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith('{"job"')]

    def lines(self, kind: str, rank: int) -> list[dict[str, Any]]:
        """Return the lines of one kind and rank in the recording."""
        path = self.folder / f"{kind}_rank{rank}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def monitored_job(tmp_path: Path) -> Iterator[MonitoredJob]:
    (port,) = free_ports(1)
    job, folder, inbox = tmp_path / "job.yaml", tmp_path / "recording", tmp_path / "inbox"
    job.write_text(yaml.safe_dump({"name": "train", "nodes": 1, "ranks_per_node": RANKS}))
    url = f"http://{LOOPBACK}:{port}"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"n": RANKS, "rank_node": [0] * RANKS, "t_go": time.time()}))
    watch: list[str | Path] = [sys.executable, "-m", "api.cli", "faults", "monitor", job, "--port", str(port)]
    record: list[str | Path] = [sys.executable, "-m", "api.cli", "faults", "record", "--peers", NODE]
    record += ["--ranks-per-node", str(RANKS), "--inbox", inbox, "-o", folder, "--send", url]
    with ExitStack() as stack:
        monitor = stack.enter_context(Process.start(watch, name="fault-monitor", log_dir=tmp_path))
        monitor.wait_ready(lambda: answers_ok(f"{url}/healthz"))
        stack.enter_context(Process.start(record, name="recorder", log_dir=tmp_path)).wait_ready(inbox.exists)
        yield MonitoredJob(folder, inbox, monitor.log_path)


def started(job: TrainJob, log_dir: Path) -> Process:
    settings = log_dir / "train.json"
    settings.write_text(json.dumps(asdict(job)))
    return Process.start([sys.executable, "-m", "tests.testbed.train_job", settings], name="train", log_dir=log_dir)


def replayed(folder: Path) -> list[dict[str, Any]]:
    """Return the output of `fleetwright faults replay` for the recording."""
    replay: list[str | Path] = [sys.executable, "-m", "api.cli", "faults", "replay", folder, "--format", "json"]
    diagnoses: list[dict[str, Any]] = json.loads(subprocess.run(replay, capture_output=True, check=True).stdout)
    return diagnoses


def test_an_absent_worker_is_reported_live_and_on_replay_and_a_restart_is_monitored(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    with monitored_job(tmp_path) as monitored:
        job = TrainJob(
            address=ray_cluster.address,
            folder=str(tmp_path),
            to=f"unix:{monitored.inbox}",
            steps=5 * BETWEEN_REPORTS,
            stays_away=(1, 3 * BETWEEN_REPORTS + 5),
            ends=(0, 4 * BETWEEN_REPORTS + 5),
        )
        with started(job, tmp_path) as driver:
            wait_for(lambda: monitored.lines("hb", 1), what="heartbeat")
            named = wait_for(monitored.diagnoses, what="diagnosis")
            # Replay evaluates at other times than the monitor did, and under load it can need a little more.
            heartbeats = len(monitored.lines("hb", 1))
            wait_for(lambda: len(monitored.lines("hb", 1)) >= heartbeats + 8, what="heartbeats of the absent worker")
            job.go_on.touch()
            assert driver.popen.wait(timeout=PATIENCE_S) == 0, driver.log_path.read_text()
    for diagnoses in (named, replayed(monitored.folder)):
        assert [diagnosis["class"] for diagnosis in diagnoses] == ["noncomm-hang"]
        assert "rank 1 has not called the operation that 1 ranks wait in" in diagnoses[0]["reason"]
    for rank in range(RANKS):
        through = [line for line in monitored.lines("coll", rank) if line["t1"] is not None]
        first, second = through[:-STEPS_AGAIN], through[-STEPS_AGAIN:]
        assert [line["op"] for line in first] == [*EVERY * 4, *["barrier"] * 5]
        assert [line["op"] for line in second] == EVERY  # from the checkpoint of the last report
        for life in (first, second):
            assert [line["seq"] for line in life] == list(range(1, len(life) + 1))
        assert [line["step"] for line in through if line["op"] == "report"] == [0, 1, 2, 3, 4]
        last = monitored.lines("hb", rank)[-1]
        assert (last["phase"], last["step"], last["done"]) == ("done", 5, STEPS_AGAIN)
