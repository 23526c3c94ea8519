"""Metrics of waiting jobs and of workers, and the health of a worker."""

import asyncio
import signal
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry

from api.jobs.lost_workers import LOST_AFTER_S
from api.jobs.metrics import JobMetrics
from api.jobs.worker import ALIVE_FOR_S, Worker, WorkerSettings
from api.schemas.jobs import JobState, Lane
from api.server.metrics import FleetState, ServiceMetrics, render_state
from api.store import JobRecord, LaneCount, Migrations, Store, WorkerRecord
from tests.testbed.cli import COMMAND
from tests.testbed.jobs import ThreadExecutor
from tests.testbed.processes import LOOPBACK, Process, answers_ok, free_ports
from tests.testbed.service import RunningService

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 27, tzinfo=UTC)
JOB = JobRecord(
    id="1",
    kind="plan",
    lane=Lane.WORK.value,
    state=JobState.QUEUED.value,
    project="default",
    created_at=NOW,
    created_by="token:a",
    request_id=None,
    key=None,
    fingerprint=None,
    parent=None,
    subject=None,
    deadline_s=60.0,
)


class _RolledBackError(Exception):
    """Ends a transaction whose changes no other may see."""


async def test_waiting_jobs_are_counted_by_lane_with_the_time_of_the_oldest(service: RunningService) -> None:
    with pytest.raises(_RolledBackError):
        async with service.app.state.service.store.transaction() as tx:
            for number, (lane, state) in enumerate(
                [(Lane.WORK, "queued"), (Lane.WORK, "queued"), (Lane.SAFETY, "running"), (Lane.READS, "succeeded")]
            ):
                at = NOW + timedelta(seconds=number)
                await tx.jobs.add(
                    replace(JOB, id=str(number), lane=lane.value, state=state, created_at=at), request="{}"
                )
            counts = await tx.jobs.counts()
            raise _RolledBackError
    assert {(count.lane, count.state): (count.jobs, count.oldest) for count in counts} == {
        ("work", "queued"): (2, NOW),
        ("safety", "running"): (1, NOW + timedelta(seconds=2)),
    }


def test_every_lane_has_its_queue_and_the_age_of_its_oldest_job() -> None:
    counts = [
        LaneCount(lane="work", state="queued", jobs=2, oldest=NOW - timedelta(seconds=90)),
        LaneCount(lane="safety", state="running", jobs=1, oldest=NOW - timedelta(seconds=30)),
    ]
    page = render_state(FleetState(at=NOW, database_up=True, jobs=counts, workers=3)).decode().splitlines()
    for lane, queued, age_s in (("work", 2, 90), ("safety", 0, 0), ("reads", 0, 0)):
        assert f'fleetwright_jobs_queued{{lane="{lane}"}} {queued}.0' in page
        assert f'fleetwright_jobs_oldest_queued_seconds{{lane="{lane}"}} {age_s}.0' in page
    assert "fleetwright_workers 3.0" in page


async def test_the_service_exports_its_workers_and_queues(service: RunningService) -> None:
    async with service.client(None) as client, asyncio.timeout(30):
        while "fleetwright_workers 1.0" not in (page := (await client.get("/metrics")).text.splitlines()):
            await asyncio.sleep(0.05)
    assert 'fleetwright_jobs_queued{lane="work"} 0.0' in page


def test_a_worker_whose_beats_stand_still_is_not_counted() -> None:
    metrics = ServiceMetrics()
    steady, dead = (WorkerRecord(id=name, beats=7, started_at=NOW, version="1") for name in ("steady", "dead"))
    assert metrics.live_workers([steady, dead], now_s=0.0) == 2
    later_s = LOST_AFTER_S + 1
    assert metrics.live_workers([replace(steady, beats=29), dead], now_s=later_s) == 1
    assert metrics.live_workers([replace(steady, beats=29), dead], now_s=2 * later_s) == 0
    assert metrics.live_workers([replace(steady, beats=30), replace(dead, beats=8)], now_s=2 * later_s) == 2


@pytest.mark.parametrize("reachable", [True, False], ids=["database", "no database"])
async def test_a_worker_is_alive_while_it_beats_even_without_a_database(tmp_path: Path, *, reachable: bool) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/fleetwright.db"
    if reachable:
        Migrations(url).upgrade()
    else:
        (tmp_path / "fleetwright.db").mkdir()
    now_s = 0.0
    store = Store(url)
    worker = Worker(
        store=store,
        executor=ThreadExecutor(),
        settings=WorkerSettings(),
        metrics=JobMetrics(CollectorRegistry()),
        now=lambda: NOW,
        monotonic_s=lambda: now_s,
    )
    assert not worker.is_alive()
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(30):
        for _ in range(2):
            while not worker.is_alive():
                await asyncio.sleep(0.01)
            now_s += ALIVE_FOR_S + 1  # as if the event loop had been stuck
            assert not worker.is_alive()
        while not worker.is_alive():
            await asyncio.sleep(0.01)
        worker.stop()
        await running
        await store.close()
        # The driver does not wait for the thread of a connection that failed to open; that thread needs this loop.
        while any("_connection_worker_thread" in thread.name for thread in threading.enumerate()):
            await asyncio.sleep(0.001)


def test_the_command_serves_its_health_and_its_metrics(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/fleetwright.db"
    Migrations(url).upgrade()
    (port,) = free_ports(1)
    argv = [*COMMAND, "worker", "--name", "one", "--metrics-port", str(port)]
    with Process.start(argv, name="worker", log_dir=tmp_path, env={"FLEETWRIGHT_DATABASE_URL": url}) as process:
        process.wait_ready(lambda: answers_ok(f"http://{LOOPBACK}:{port}/healthz"))
        page = httpx.get(f"http://{LOOPBACK}:{port}/metrics", trust_env=False).text
        assert "fleetwright_workers_lost_total 0.0" in page.splitlines()
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(30) == 0
