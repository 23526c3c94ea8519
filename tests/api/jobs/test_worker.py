"""Workers that share the table of jobs: one claim each, lost workers, cancellation, shutdown."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from api.jobs.executor import Limits
from api.jobs.lost_workers import LOST_AFTER_S, WorkerWatch
from api.jobs.metrics import JobMetrics
from api.jobs.outcome import Finished, JobFailure, Report, Solved, Task, died
from api.jobs.worker import MAX_ATTEMPTS, Worker, WorkerSettings
from api.schemas.jobs import JobState, Lane
from api.schemas.projects import DEFAULT_PROJECT
from api.store import JobRecord, Store, WorkerRecord
from api.store.jobs import JobRepository
from tests.testbed.waiting import PATIENCE_S

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
PATHS = "fault paths"  # a kind that stores only its own output


class Gate:
    """Runs jobs that end when the test says so."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.absent: set[Lane] = set()
        self.cancelled: list[str] = []
        self.release = asyncio.Event()
        self.outcome: Solved | JobFailure = Solved(output='"done"')

    async def warm_up(self) -> None:
        """Nothing to prepare."""

    def takes(self, lane: Lane) -> bool:
        return lane not in self.absent

    async def run(self, task: Task, *, limits: Limits, report: Report) -> Finished:  # noqa: ARG002
        self.started.append(task.id)
        report("working", 0.5)
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.append(task.id)
            raise
        return Finished(self.outcome, cpu_s=1.5)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    store = Store(database_url)
    yield store
    await store.close()


def record(job_id: str, *, lane: Lane = Lane.WORK, **changes: Any) -> JobRecord:
    values: dict[str, Any] = {
        "id": job_id,
        "kind": PATHS,
        "lane": lane.value,
        "state": JobState.QUEUED.value,
        "project": DEFAULT_PROJECT,
        "created_at": NOW,
        "created_by": "token:a",
        "request_id": None,
        "key": None,
        "fingerprint": None,
        "parent": None,
        "subject": None,
        "deadline_s": 60.0,
    }
    return JobRecord(**values | changes)


async def add(store: Store, *jobs: JobRecord) -> None:
    async with store.transaction() as tx:
        for job in jobs:
            await tx.jobs.add(job, request=json.dumps({}))


async def job(store: Store, job_id: str) -> JobRecord:
    async with store.reading() as tx:
        found = await tx.jobs.get(job_id)
    assert found is not None
    return found


def worker(
    store: Store, gate: Gate, name: str, *, clock_s: Callable[[], float] = lambda: 0.0, **options: Any
) -> Worker:
    settings = WorkerSettings(id=name, busy_poll_s=0.01, idle_poll_s=0.01, grace_s=0.05, **options)
    metrics = JobMetrics(CollectorRegistry())
    return Worker(store=store, executor=gate, settings=settings, metrics=metrics, now=lambda: NOW, monotonic_s=clock_s)


@asynccontextmanager
async def running(*workers: Worker) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(each.run()) for each in workers]
    try:
        yield
    finally:
        for each in workers:
            each.stop()
        await asyncio.gather(*tasks)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.01)


async def has_state(store: Store, job_id: str, state: JobState) -> bool:
    return (await job(store, job_id)).state == state


async def test_a_job_runs_and_keeps_its_output_and_processor_time(store: Store) -> None:
    gate = Gate()
    gate.release.set()
    await add(store, record("j1"))
    async with running(worker(store, gate, "w")):
        await until(lambda: has_state(store, "j1", JobState.SUCCEEDED))
    ended = await job(store, "j1")
    assert (ended.attempts, ended.cpu_s, ended.finished_at) == (1, 1.5, NOW)
    async with store.reading() as tx:
        assert await tx.jobs.output_of("j1") == '"done"'
        assert await tx.jobs.request_of("j1") is None
        assert await tx.workers.all() == []


async def test_two_workers_share_the_jobs_and_none_runs_twice(store: Store) -> None:
    gates = Gate(), Gate()
    for gate in gates:
        gate.release.set()
    names = [f"j{number:02}" for number in range(20)]
    await add(store, *map(record, names))

    async def all_ended() -> bool:
        async with store.reading() as tx:
            return len(await tx.jobs.finished_among(names)) == len(names)

    async with running(worker(store, gates[0], "w1"), worker(store, gates[1], "w2")):
        await until(all_ended)
    assert sorted(gates[0].started + gates[1].started) == names


async def test_a_full_lane_does_not_delay_another_one(store: Store) -> None:
    gate = Gate()
    await add(store, record("w1"), record("w2"), record("w3"), record("s1", lane=Lane.SAFETY))
    async with running(worker(store, gate, "w")):
        await until(lambda: "s1" in gate.started and len(gate.started) == 3)
        assert (await job(store, "w3")).state == JobState.QUEUED
        gate.release.set()
        await until(lambda: has_state(store, "w3", JobState.SUCCEEDED))


async def test_jobs_of_a_lane_wait_while_the_executor_cannot_run_them(store: Store) -> None:
    gate = Gate()
    gate.release.set()
    gate.absent.add(Lane.WORK)
    await add(store, record("w1"), record("s1", lane=Lane.SAFETY))
    async with running(worker(store, gate, "w")):
        await until(lambda: has_state(store, "s1", JobState.SUCCEEDED))
        assert (await job(store, "w1")).state == JobState.QUEUED
        gate.absent.clear()
        await until(lambda: has_state(store, "w1", JobState.SUCCEEDED))


async def test_progress_is_stored_and_a_running_job_is_cancelled_within_a_second(store: Store) -> None:
    gate = Gate()
    await add(store, record("j1"))
    async with running(worker(store, gate, "w")):

        async def has_progress() -> bool:
            return (await job(store, "j1")).phase == "working"

        await until(has_progress)
        async with asyncio.timeout(1.0):
            async with store.transaction() as tx:
                assert await tx.jobs.cancel("j1", at=NOW)
            await until(lambda: has_state(store, "j1", JobState.CANCELLED))
    assert gate.cancelled == ["j1"]


async def test_a_worker_that_stops_gives_its_job_back_uncounted(store: Store) -> None:
    gate = Gate()
    await add(store, record("j1"))
    async with running(worker(store, gate, "w")):
        await until(lambda: gate.started)
    left = await job(store, "j1")
    assert (left.state, left.attempts, left.worker) == (JobState.QUEUED, 0, None)


async def test_a_job_of_a_lost_worker_runs_again_and_the_lost_one_cannot_end_it(store: Store) -> None:
    clock_s = [0.0]
    await add(store, record("j1"))
    async with store.transaction() as tx:
        await tx.workers.put(WorkerRecord("dead", beats=7, started_at=NOW, version="1"))
        assert await tx.jobs.claim("j1", worker="dead", at=NOW)
    gate = Gate()
    async with running(worker(store, gate, "w", clock_s=lambda: clock_s[0])):
        await asyncio.sleep(0.7)  # more than one beat: the clock of the observer stands still, so nothing is lost
        assert not gate.started
        clock_s[0] = LOST_AFTER_S + 1
        await until(lambda: gate.started)
        async with store.transaction() as tx:
            assert not await tx.jobs.finish("j1", worker="dead", state=JobState.SUCCEEDED, at=NOW)
        gate.release.set()
        await until(lambda: has_state(store, "j1", JobState.SUCCEEDED))
    assert (await job(store, "j1")).attempts == 2


async def test_a_job_whose_workers_are_lost_again_and_again_fails(store: Store) -> None:
    await add(store, record("j1"))
    for _attempt in range(MAX_ATTEMPTS):
        async with store.transaction() as tx:
            assert await tx.jobs.claim("j1", worker="dead", at=NOW)
            await tx.jobs.requeue(worker="dead", max_attempts=MAX_ATTEMPTS, at=NOW, failure=died("x").to_json())
    ended = await job(store, "j1")
    assert (ended.state, ended.attempts) == (JobState.FAILED, MAX_ATTEMPTS)


async def test_a_job_of_an_unknown_kind_fails_with_its_name(store: Store) -> None:
    await add(store, record("j1", kind="of-a-newer-release"))
    async with running(worker(store, Gate(), "w")):
        await until(lambda: has_state(store, "j1", JobState.FAILED))
    assert "of-a-newer-release" in ((await job(store, "j1")).failure or "")


class TestWatch:
    def test_a_worker_is_lost_only_when_its_beats_stand_still_long_enough(self) -> None:
        watch = WorkerWatch("me")
        others = [WorkerRecord("other", beats=1, started_at=NOW, version="1")]
        assert watch.lost(others, orphans=(), now_s=0.0) == []
        assert watch.lost(others, orphans=(), now_s=LOST_AFTER_S) == []
        assert watch.lost(others, orphans=(), now_s=LOST_AFTER_S + 0.1) == ["other"]

    def test_a_beat_starts_the_time_again(self) -> None:
        watch = WorkerWatch("me")
        for beats, now_s in ((1, 0.0), (2, LOST_AFTER_S), (2, 2 * LOST_AFTER_S)):
            other = WorkerRecord("other", beats=beats, started_at=NOW, version="1")
            assert watch.lost([other], orphans=(), now_s=now_s) == []

    def test_jobs_of_a_worker_that_left_the_table_are_orphans_but_not_ones_own(self) -> None:
        assert WorkerWatch("me").lost([], orphans=("gone", "me"), now_s=0.0) == ["gone"]


@pytest.mark.postgres
async def test_jobs_end_while_the_worker_stores_the_progress_of_others(
    migrated_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, gate = Store(migrated_postgres_url), Gate()
    await add(store, record("a"), record("b"))
    set_progress = JobRepository.set_progress

    async def slow(self: JobRepository, job_id: str, **progress: Any) -> None:
        await set_progress(self, job_id, **progress)
        if not gate.release.is_set():
            gate.release.set()
            await until(lambda: has_state(store, "b" if job_id == "a" else "a", JobState.SUCCEEDED))

    async with running(worker(store, gate, "w", slots={Lane.WORK: 2})):
        await until(lambda: len(gate.started) == 2)
        monkeypatch.setattr(JobRepository, "set_progress", slow)
        for each in ("a", "b"):
            await until(partial(has_state, store, each, JobState.SUCCEEDED))
    assert gate.cancelled == []
    await store.close()
