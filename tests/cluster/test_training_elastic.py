"""Tests that the number of workers of a real elastic Ray Train run follows the request, from its last checkpoint."""

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray

from api.schemas.applications import RayTrainRun
from deploy.actuators.base import Step
from deploy.actuators.ray_train import RayTrainActuator, ray_train_actuators
from deploy.common.errors import UnreachableError
from deploy.controller.rollout import verify
from deploy.remediation.ray_cluster import RayCluster as RemediationCluster
from deploy.training.run_status import RunStatusReader
from tests.testbed.processes import Process
from tests.testbed.ray_cluster import RayCluster
from tests.testbed.remediated_run import ENDLESS
from tests.testbed.train_job import TrainJob
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.ray
MAX = 3
GPU = "H100"


@pytest.fixture
def joined(ray_cluster: RayCluster) -> Iterator[RayCluster]:
    """Join the cluster with this process."""
    ray.init(address=ray_cluster.address, namespace="fleetwright", log_to_driver=False)
    yield ray_cluster
    ray.shutdown()


def test_the_number_of_workers_follows_the_request_and_training_resumes_from_a_checkpoint(
    joined: RayCluster, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory(prefix="fw-heal-") as inboxes:
        job = TrainJob(
            address=joined.address,
            folder=str(tmp_path),
            to=f"unix:{inboxes}/none",
            steps=ENDLESS,
            workers=MAX,
            min_workers=1,
            healed=True,
        )
        settings = tmp_path / "train.json"
        settings.write_text(json.dumps(asdict(job)))
        argv: list[str | Path] = [sys.executable, "-m", "tests.testbed.train_job", settings]
        actuator = ray_train_actuators()(RayTrainRun(run="watched", gpu=GPU))
        with Process.start(argv, name="train", log_dir=tmp_path) as driver:

            def lives() -> list[dict[str, Any]]:
                assert driver.running(), driver.log_tail()
                written = job.lives.read_text().splitlines(keepends=True) if job.lives.exists() else []
                return [json.loads(line) for line in written if line.endswith("\n")]

            wait_for(lives, what="first step")
            wait_for(partial(_trains, actuator, MAX), what=f"{MAX} workers")
            for before, workers in ((MAX, 1), (1, 2)):
                step = Step(part=GPU, replicas_before=before, replicas_after=workers)
                wait_for(partial(_request, actuator, step), what=f"request for {workers} workers")
                wait_for(partial(_trains, actuator, workers), what=f"{workers} workers")
                newest = lives()[-workers:]
                assert sorted(life["rank"] for life in newest) == list(range(workers))
                assert all(life["first_step"] > 0 for life in newest)


def _trains(actuator: RayTrainActuator, workers: int) -> bool:
    """Check that the run has the requested size and its group has reported a step, so that every rank completed one."""
    try:
        as_requested = verify(wanted={GPU: workers}, observation=asyncio.run(actuator.observe()))
        return as_requested and RunStatusReader().one_run("watched").attempt_step is not None
    except UnreachableError:  # a busy machine: the next poll repeats the request, as a controller does
        return False


def _request(actuator: RayTrainActuator, step: Step) -> bool:
    try:
        asyncio.run(actuator.apply(step))
    except UnreachableError:
        return False
    return True


async def _probed(cluster: RemediationCluster, ids: list[str]) -> str:
    reading = await cluster.probe(ids[0], good=ids[1:])
    return f"{reading.passed} {reading.detail}"


def test_a_healthy_node_passes_a_probe_against_two_others(joined: RayCluster) -> None:
    ids = [joined.node_ids[name] for name in ("h100", "a100", "l4")]
    result = asyncio.run(_probed(RemediationCluster(), ids))
    assert "between good nodes" in result
    gone = asyncio.run(_probed(RemediationCluster(), ["f" * 56, *ids[1:]]))
    assert gone == "False the node has left the cluster"
