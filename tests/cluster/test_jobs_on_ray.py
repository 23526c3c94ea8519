"""Tests that the jobs of a real worker run on the nodes of a real Ray cluster, and what happens when a node fails."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from api.jobs.outcome import JobFailure
from api.schemas.jobs import JobState, Lane
from tests.api.server.test_plans import plan_request
from tests.testbed.proc import PROC, descendants, is_running
from tests.testbed.processes import Process, free_ports
from tests.testbed.ray_cluster import RayCluster, RayNode, check_machine, running_ray_cluster
from tests.testbed.requirements import skipping_where_unavailable
from tests.testbed.waiting import wait_for
from tests.testbed.workers import Table, running_worker

pytestmark = pytest.mark.ray

FAULTS = "fault simulation"
SECONDS = {"ranks": 512, "hours": 0.25}
KILLED = {"ranks": 512, "hours": 2}
LONG = {"ranks": 512, "hours": 4}
HUNGRY = {"ranks": 16_384, "hours": 0.12}
SWEEP: dict[str, Any] = {"request": plan_request(), "axes": [{"knob": "rate", "factors": [0.5, 1.0, 2.0]}]}
MEMORY_MIB = 320  # less than the hungry job needs
SETTINGS = {"job_memory_mib": str(MEMORY_MIB), "plan_concurrency": "4"}
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


@pytest.fixture(scope="module")
def table(migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Table:
    path = shutil.copy(migrated_file, tmp_path_factory.mktemp("database") / "fleetwright.db")
    return Table(f"sqlite+aiosqlite:///{path}")


@pytest.fixture(scope="module")
def worker(table: Table, cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    log_dir = tmp_path_factory.mktemp("worker")
    with running_worker(table.url, log_dir, name="on-ray", job_ray_address=cluster.address, **SETTINGS) as process:
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
    first, second = table.add(LONG, kind=FAULTS), table.add(LONG, kind=FAULTS)
    (one, task), (other, _) = place(cluster, first), place(cluster, second)
    assert {one, other} == {"one", "two"}
    third = table.add(SECONDS, kind=FAULTS)
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
    job = table.add(KILLED, kind=FAULTS)
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
def test_a_sweep_has_its_points_planned_by_the_cluster(table: Table) -> None:
    job = table.add(SWEEP, kind="sweep")
    assert table.ended(job).state == JobState.SUCCEEDED
    sweep = table.result(job, kind="sweep")
    assert [point["factors"]["rate"] for point in sweep["points"]] == SWEEP["axes"][0]["factors"]
    assert sweep["failed"] == []


@pytest.mark.usefixtures("worker")
def test_a_job_that_needs_more_memory_fails_with_the_limit(table: Table) -> None:
    failure = JobFailure.from_json(table.ended(table.add(HUNGRY, kind=FAULTS)).failure or "")
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
        failure = JobFailure.from_json(table.ended(table.add(SECONDS, kind=FAULTS)).failure or "")
        assert (failure.status, failure.kind) == (503, "job-without-node")
        assert f"has fleetwright 9.9.9, this worker {version('fleetwright')}" in failure.detail
        cluster.change_nodes([newer, *NODES])
        jobs = [table.add(SECONDS, kind=FAULTS) for _ in range(3)]  # the refused node would take one of them
        assert [table.ended(each).state for each in jobs] == [JobState.SUCCEEDED] * 3
    finally:
        cluster.change_nodes(NODES)


def test_while_the_cluster_cannot_be_reached_its_jobs_wait_and_others_run(sqlite_url: str, tmp_path: Path) -> None:
    table = Table(sqlite_url)
    (port,) = free_ports(1)
    with running_worker(table.url, tmp_path, name="far", job_ray_address=f"127.0.0.1:{port}") as process:
        work, reads = table.add(SECONDS, kind=FAULTS), table.add({}, kind="audit check", lane=Lane.READS)
        assert table.ended(reads).state == JobState.SUCCEEDED
        assert table.get(work).state == JobState.QUEUED
        wait_for(process.log_tail, lambda text: "ray_not_reachable" in text, what="the reason in the log")
        assert process.running()
        with running_worker(table.url, tmp_path, name="here"):
            assert table.ended(work).state == JobState.SUCCEEDED
