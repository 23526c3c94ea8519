"""Tests that the jobs of a real worker run on the nodes of a real Ray cluster, and what happens when a node fails."""

import asyncio
import json
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from api.jobs.outcome import JobFailure
from api.schemas.jobs import JobState, Lane
from api.schemas.projects import DEFAULT_PROJECT
from api.store import JobRecord, Store, Transaction
from tests.testbed.proc import PROC, descendants, is_running
from tests.testbed.processes import Process, free_ports
from tests.testbed.ray_cluster import RayCluster, RayNode, check_machine, running_ray_cluster
from tests.testbed.requirements import skipping_where_unavailable
from tests.testbed.waiting import wait_for

pytestmark = pytest.mark.ray

FAULTS = "fault simulation"
SECONDS = {"ranks": 512, "hours": 0.25}
KILLED = {"ranks": 512, "hours": 2}
LONG = {"ranks": 512, "hours": 4}
HUNGRY = {"ranks": 16_384, "hours": 0.12}
MEMORY_MIB = 320  # less than the hungry job needs
NODES = tuple(RayNode(name=name, cpus=1, rack="rack-1", power_domain="pdu-a") for name in ("one", "two"))
# Ray takes a node for dead after half a minute otherwise.
FAST = {"RAY_health_check_initial_delay_ms": "0", "RAY_health_check_period_ms": "300"}
CANCEL_S = 2.0  # the worker reads requests to cancel twice a second


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Run a head without cores, and two nodes with one core each."""
    with skipping_where_unavailable("ray", what="Ray"):
        check_machine()
    log_dir = tmp_path_factory.mktemp("ray")
    with running_ray_cluster(NODES, log_dir=log_dir, head_cpus=0, environment=FAST) as running:
        yield running


class Table:
    """Reads and writes the jobs of one database, with a connection for each call."""

    def __init__(self, url: str) -> None:
        self.url = url

    def add(self, request: Mapping[str, Any], *, kind: str = FAULTS, lane: Lane = Lane.WORK) -> str:
        job = JobRecord(
            id=secrets.token_hex(8),
            kind=kind,
            lane=lane.value,
            state=JobState.QUEUED.value,
            project=DEFAULT_PROJECT,
            created_at=datetime.now(UTC),
            created_by="token:a",
            request_id=None,
            key=None,
            fingerprint=None,
            parent=None,
            subject=None,
            deadline_s=120.0,
        )
        self._do(lambda tx: tx.jobs.add(job, request=json.dumps(request)))
        return job.id

    def get(self, job_id: str) -> JobRecord:
        job = self._do(lambda tx: tx.jobs.get(job_id))
        assert job is not None
        return job

    def cancel(self, job_id: str) -> None:
        assert self._do(lambda tx: tx.jobs.request_cancel(job_id))

    def ended(self, job_id: str) -> JobRecord:
        return wait_for(
            lambda: self.get(job_id), lambda job: JobState(job.state).is_final, what="end of a job", interval_s=0.1
        )

    def _do(self, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
        async def done() -> Any:
            store = Store(self.url)
            try:
                async with store.transaction() as tx:
                    return await work(tx)
            finally:
                await store.close()

        return asyncio.run(done())


@contextmanager
def running_worker(url: str, log_dir: Path, *, address: str | None) -> Iterator[Process]:
    environment = dict(os.environ) | {
        "FLEETWRIGHT_DATABASE_URL": url,
        "FLEETWRIGHT_JOB_MEMORY_MIB": str(MEMORY_MIB),
        "FLEETWRIGHT_PLAN_CONCURRENCY": "4",
    }
    if address is not None:
        environment["FLEETWRIGHT_JOB_RAY_ADDRESS"] = address
    argv = [sys.executable, "-m", "api.cli", "worker", "--metrics-port", "0"]
    with Process.start(argv, name=f"worker-{secrets.token_hex(2)}", log_dir=log_dir, env=environment) as process:
        yield process


@pytest.fixture(scope="module")
def table(migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Table:
    path = shutil.copy(migrated_file, tmp_path_factory.mktemp("database") / "fleetwright.db")
    return Table(f"sqlite+aiosqlite:///{path}")


@pytest.fixture(scope="module")
def worker(table: Table, cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with running_worker(table.url, tmp_path_factory.mktemp("worker"), address=cluster.address) as process:
        yield process


def nodes(cluster: RayCluster) -> dict[str, int]:
    """Return the process of each node, by its name."""
    found = {}
    for pid in descendants(cluster.guardian_pid):
        program, *options = arguments(pid) or [""]
        if program.endswith("/raylet"):
            found.update({text.partition("=")[2]: pid for text in options if text.startswith("--node-name=")})
    return found


def places(cluster: RayCluster, job_id: str) -> dict[str, int]:
    """Return the nodes where a job runs, with the Ray worker that runs it."""
    return {
        name: pid
        for name, raylet in nodes(cluster).items()
        for pid in descendants(raylet)
        if arguments(pid)[:1] == [f"ray::{FAULTS} {job_id}"] and len(descendants(pid)) > 2
    }


def arguments(pid: int) -> list[str]:
    try:
        return (PROC / str(pid) / "cmdline").read_text().rstrip("\0 ").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def place(cluster: RayCluster, job_id: str) -> tuple[str, int]:
    ((name, pid),) = wait_for(lambda: places(cluster, job_id), what="a node that runs the job").items()
    return name, pid


@pytest.mark.usefixtures("worker")
def test_jobs_spread_over_the_nodes_and_a_cancelled_one_leaves_no_process(cluster: RayCluster, table: Table) -> None:
    first, second = table.add(LONG), table.add(LONG)
    (one, task), (other, _) = place(cluster, first), place(cluster, second)
    assert {one, other} == {"one", "two"}
    third = table.add(SECONDS)
    wait_for(lambda: table.get(third).phase, lambda phase: phase == "waiting for a node", what="waiting job")
    processes = [task, *descendants(task)]
    begun_s = time.monotonic()
    table.cancel(first)
    assert table.ended(first).state == JobState.CANCELLED
    wait_for(lambda: [pid for pid in processes if is_running(pid)], lambda left: not left, what="end of its processes")
    assert time.monotonic() - begun_s < CANCEL_S
    table.cancel(second)
    assert table.ended(third).state == JobState.SUCCEEDED


@pytest.mark.usefixtures("worker")
def test_a_job_of_a_killed_node_finishes_on_another_one(cluster: RayCluster, table: Table) -> None:
    job = table.add(KILLED)
    name, _ = place(cluster, job)
    raylet = nodes(cluster)[name]
    for pid in (raylet, *descendants(raylet)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    (other,) = {"one", "two"} - {name}
    wait_for(lambda: places(cluster, job), lambda found: set(found) == {other}, what="the job on another node")
    ended = table.ended(job)
    cluster.change_nodes([node for node in NODES if node.name == other])
    cluster.change_nodes(NODES)
    assert (ended.state, ended.attempts) == (JobState.SUCCEEDED, 1)  # the same start of the worker


@pytest.mark.usefixtures("worker")
def test_a_job_that_needs_more_memory_fails_with_the_limit(table: Table) -> None:
    failure = JobFailure.from_json(table.ended(table.add(HUNGRY)).failure or "")
    assert (failure.status, failure.kind) == (422, "job-out-of-memory")
    assert f"{MEMORY_MIB} MiB" in failure.detail


@pytest.mark.usefixtures("worker")
def test_a_node_with_another_version_is_refused(cluster: RayCluster, table: Table, tmp_path: Path) -> None:
    metadata = tmp_path / "fleetwright-9.9.9.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: fleetwright\nVersion: 9.9.9\n")
    newer = RayNode(
        name="newer", cpus=1, rack="rack-1", power_domain="pdu-a", environment={"PYTHONPATH": str(tmp_path)}
    )
    try:
        cluster.change_nodes([newer])
        failure = JobFailure.from_json(table.ended(table.add(SECONDS)).failure or "")
        assert (failure.status, failure.kind) == (503, "job-without-node")
        assert f"has fleetwright 9.9.9, this worker {version('fleetwright')}" in failure.detail
        cluster.change_nodes([newer, *NODES])
        jobs = [table.add(SECONDS) for _ in range(3)]  # the refused node would take one of them
        assert [table.ended(each).state for each in jobs] == [JobState.SUCCEEDED] * 3
    finally:
        cluster.change_nodes(NODES)


def test_while_the_cluster_cannot_be_reached_its_jobs_wait_and_others_run(sqlite_url: str, tmp_path: Path) -> None:
    table = Table(sqlite_url)
    (port,) = free_ports(1)
    with running_worker(table.url, tmp_path, address=f"127.0.0.1:{port}") as process:
        work, reads = table.add(SECONDS), table.add({}, kind="audit check", lane=Lane.READS)
        assert table.ended(reads).state == JobState.SUCCEEDED
        assert table.get(work).state == JobState.QUEUED
        wait_for(process.log_tail, lambda text: "ray_not_reachable" in text, what="the reason in the log")
        assert process.running()
        with running_worker(table.url, tmp_path, address=None):
            assert table.ended(work).state == JobState.SUCCEEDED
