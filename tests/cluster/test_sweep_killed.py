"""Tests that a sweep ends whole, whenever its workers are killed, and that two workers share its points."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from api.schemas.jobs import JobState
from tests.api.server.test_plans import plan_request
from tests.testbed.processes import Process
from tests.testbed.soak import SOAK
from tests.testbed.waiting import wait_for
from tests.testbed.workers import Table, running_worker

POINTS = 24
KILLS = 30 if SOAK else 1
SWEEP = {"request": plan_request(), "axes": [{"knob": "rate", "factors": [1 + step / 10 for step in range(POINTS)]}]}


def kill(process: Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.popen.wait()


def test_a_sweep_ends_whole_after_kills_of_its_only_slot(database_url: str, tmp_path: Path) -> None:
    """A worker of the same name takes the jobs over at once."""
    table, chance = Table(database_url), random.Random(1)
    job = table.add(SWEEP, kind="sweep")
    for _each in range(KILLS):
        with running_worker(database_url, tmp_path, name="w", plan_concurrency="1") as worker:
            wait_for(lambda: "worker_started" in worker.log_tail(), what="start of the worker")
            time.sleep(chance.uniform(0.0, 1.5))
            kill(worker)
    with running_worker(database_url, tmp_path, name="w", plan_concurrency="1"):
        ended = table.ended(job)
    assert ended.state == JobState.SUCCEEDED
    sweep = table.result(job, kind="sweep")
    assert len(sweep["points"]) + len(sweep["failed"]) == POINTS
    assert len(sweep["failed"]) <= KILLS // 3  # a job whose worker is lost three times


@pytest.mark.postgres
def test_two_workers_share_the_points_and_one_finishes_them_alone(migrated_postgres_url: str, tmp_path: Path) -> None:
    table = Table(migrated_postgres_url)
    job = table.add(SWEEP, kind="sweep")
    with (
        running_worker(table.url, tmp_path, name="one", plan_concurrency="1") as one,
        running_worker(table.url, tmp_path, name="two", plan_concurrency="1"),
    ):
        wait_for(lambda: {each.worker for each in table.children(job)} >= {"one", "two"}, what="points of both")
        kill(one)
        ended = table.ended(job)
    assert ended.state == JobState.SUCCEEDED
    assert len(table.result(job, kind="sweep")["points"]) == POINTS
