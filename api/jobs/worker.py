"""Claims jobs, runs them in processes of their own, and stores what they make.

Any number of workers share the table of jobs.  Each has slots per lane.  Every `BEAT_S` it counts one more beat in its
row; a worker whose beats stand still for some seconds on the clock of another one is lost, and its jobs are queued
again.  (No two machines compare their clocks.)  The end of a job is conditional on holding it, so a worker that only
seemed lost changes nothing.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib.metadata import version
from typing import Final, TypeVar

import structlog

from api.jobs.audit_check import DATABASE_URL
from api.jobs.ends import FencedError, store_end
from api.jobs.executor import Executor, Limits
from api.jobs.fairness import Starts, next_job
from api.jobs.kinds import JobKind, kind_named
from api.jobs.lost_workers import WorkerWatch
from api.jobs.metrics import JobMetrics
from api.jobs.outcome import (
    Finished,
    JobFailure,
    JobLimits,
    Solved,
    Task,
    cancelled,
    defect,
    failure_of,
    lost,
)
from api.jobs.reuse import content_of, earlier_result, inputs_of
from api.jobs.running import RunningJob, job_context
from api.schemas.jobs import Lane
from api.store import DatabaseUnavailableError, JobRecord, Store, Transaction, WorkerRecord
from api.tracing import span

BEAT_S: Final = 0.5
MAX_ATTEMPTS: Final = 3
BUSY_POLL_S: Final = 0.05
IDLE_POLL_S: Final = 0.25
BUSY_FOR_S: Final = 10.0  # after the last job, poll often
RETRY_S: Final = 0.5
OUTAGE_LOG_S: Final = 60.0
ALIVE_FOR_S: Final = 30.0  # after a beat, whether or not the database took it
T = TypeVar("T")

log = structlog.get_logger("fleetwright.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    id: str = field(default_factory=lambda: f"worker-{secrets.token_hex(4)}")
    slots: Mapping[Lane, int] = field(default_factory=lambda: {Lane.SAFETY: 1, Lane.READS: 1, Lane.WORK: 2})
    database_url: str = field(default="", repr=False)
    memory_mib: int = 1024
    limits: JobLimits = field(default_factory=JobLimits)
    grace_s: float = 5.0  # for running jobs at the end
    reuse_s: float = 3600.0  # of results of the same request and catalogues; 0: never
    busy_poll_s: float = BUSY_POLL_S
    idle_poll_s: float = IDLE_POLL_S


class Worker:
    """Runs until it is stopped.  `now` dates rows; `monotonic_s` measures how long others stand still."""

    def __init__(
        self,
        *,
        store: Store,
        executor: Executor,
        settings: WorkerSettings,
        metrics: JobMetrics,
        now: Callable[[], datetime],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._executor = executor
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._monotonic_s = monotonic_s
        self._running: dict[str, RunningJob] = {}
        self._starts = {lane: Starts() for lane in Lane}
        self._watch = WorkerWatch(settings.id)
        self._beats = 0
        self._beat_s = float("-inf")
        self._busy_until_s = 0.0
        self._outage_logged_s = -OUTAGE_LOG_S
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()

    def stop(self) -> None:
        """Claim nothing more; `run` returns once the running jobs have ended or are queued again."""
        self._stopping.set()
        self._wake.set()

    def is_alive(self) -> bool:
        """Return whether the last beat is recent; for a health endpoint in another thread."""
        return self._monotonic_s() - self._beat_s <= ALIVE_FOR_S

    def wake(self) -> None:
        """Poll for jobs now, as a service in the same process requests after it has stored one."""
        self._wake.set()

    async def run(self) -> None:
        """Work until `stop`.  An unreachable database is waited for."""
        await self._executor.warm_up()
        try:
            await self._until_stored(self._register)
        except DatabaseUnavailableError:
            return  # stopped before the database answered
        log.info("worker_started", worker=self._settings.id)
        # Nothing but a job's execution is ever cancelled: a cancelled transaction leaks its connection.
        async with asyncio.TaskGroup() as beside:
            beside.create_task(self._keep_beating())
            try:
                await self._claim_jobs(beside)
            finally:
                await self._end_jobs()
                self._ended.set()
        with suppress(DatabaseUnavailableError):
            await self._leave()
        log.info("worker_stopped", worker=self._settings.id)

    async def _claim_jobs(self, beside: asyncio.TaskGroup) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                while await self._claim_one(beside):
                    self._busy_until_s = self._monotonic_s() + BUSY_FOR_S
            except DatabaseUnavailableError as error:
                self._report_outage(error)
            busy = self._monotonic_s() < self._busy_until_s
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    self._wake.wait(), self._settings.busy_poll_s if busy else self._settings.idle_poll_s
                )

    async def _claim_one(self, beside: asyncio.TaskGroup) -> bool:
        """Start one waiting job in a lane with a free slot; False when there is none."""
        free = [
            lane
            for lane in Lane
            if self._busy_slots(lane) < self._settings.slots.get(lane, 0) and self._executor.takes(lane)
        ]
        if not free:
            return False
        async with self._store.reading() as tx:
            waiting = await tx.jobs.queued_lanes()
            for lane in free:
                if lane in waiting:
                    queued, running = await tx.jobs.oldest_queued(lane=lane), await tx.jobs.running(lane=lane)
                    break
            else:
                return False
        starts = self._starts[lane]
        starts.forget(queued)
        chosen = next_job(queued, running=running, starts=starts)
        if chosen is None:
            return False
        now = self._now()
        async with self._store.transaction() as tx:
            claimed = await tx.jobs.claim(chosen.id, worker=self._settings.id, at=now)
            job = await tx.jobs.get(chosen.id) if claimed else None
        if job is not None:
            starts.add(chosen)
            # The points of a sweep wait for each other, and its second run for them.
            first = job.parent is None and job.started_at == now
            self._metrics.observe_start(lane=job.lane, wait_s=(now - job.created_at).total_seconds() if first else None)
            mine = self._running[job.id] = RunningJob(job)
            mine.task = beside.create_task(self._work(mine))
        return True  # another worker was faster: there may be more

    def _busy_slots(self, lane: Lane) -> int:
        return sum(running.job.lane == lane for running in self._running.values())

    async def _work(self, running: RunningJob) -> None:
        """Run one job and store its end, unless it goes back to the queue."""
        job, begun_s = running.job, self._monotonic_s()
        outcome, cpu_s = "requeued", 0.0
        try:
            with job_context(job) as traced:
                finished = await self._finished(running)
                running.phases.end()
                if finished is not None:
                    with span("store the result"):
                        await self._store_any_end(job, finished)
                    cpu_s = finished.cpu_s
                    outcome = finished.outcome.kind if isinstance(finished.outcome, JobFailure) else "succeeded"
                traced.set(fleetwright__job__outcome=outcome, fleetwright__job__cpu_s=cpu_s)
        except FencedError:
            outcome = "fenced"
            log.warning("job_fenced", job=job.id)
        except DatabaseUnavailableError:
            log.warning("job_not_stored", job=job.id)  # this worker stops; another one takes the job over
        finally:
            del self._running[job.id]
            self._wake.set()
            run_s = self._monotonic_s() - begun_s
            self._metrics.observe_end(kind=job.kind, lane=job.lane, outcome=outcome, run_s=run_s, cpu_s=cpu_s)

    async def _finished(self, running: RunningJob) -> Finished | None:
        """Return the end of a job; None when the worker ends before, so that the job is queued again."""
        try:
            return await self._outcome(running)
        except asyncio.CancelledError:
            return Finished(cancelled()) if running.is_cancelled else None
        except DatabaseUnavailableError:
            raise
        except Exception as error:
            if (failure := failure_of(error)) is not None:
                return Finished(failure)
            log.exception("job_broke")
            return Finished(defect())

    async def _outcome(self, running: RunningJob) -> Finished:
        job = running.job
        kind = kind_named(job.kind)
        with span("read the inputs"):
            task, cached = await self._until_stored(lambda: self._prepare(kind, job))
        if cached is not None:
            return Finished(cached)
        if running.is_cancelled or running.is_requeued:
            raise asyncio.CancelledError
        limits = Limits(memory_mib=self._settings.memory_mib, deadline_s=job.deadline_s, lane=Lane(job.lane))

        running.phases.enter("start the process")

        def report(phase: str, share: float | None) -> None:
            running.progress = (phase, share)
            running.phases.enter(phase)

        running.execution = asyncio.create_task(self._executor.run(task, limits=limits, report=report))
        finished = await running.execution
        running.execution = None
        if finished.defect is not None:
            log.error("job_defect", traceback=finished.defect)
        elif isinstance(finished.outcome, JobFailure):
            log.info("job_failed", failure=finished.outcome.kind, detail=finished.outcome.detail)
        elif isinstance(outcome := finished.outcome, Solved):
            content = content_of(kind, task) if outcome.reusable else None
            return replace(finished, outcome=replace(outcome, content_sha256=content, inputs=inputs_of(task)))
        return finished

    async def _store_any_end(self, job: JobRecord, finished: Finished) -> None:
        """Store the end; if that is impossible, store that the job failed, so that it is not held for ever."""
        try:
            await self._until_stored(lambda: self._store_end(job, finished))
        except (FencedError, DatabaseUnavailableError):
            raise
        except Exception:
            log.exception("job_not_stored")
            await self._until_stored(lambda: self._store_end(job, Finished(defect(), cpu_s=finished.cpu_s)))

    async def _prepare(self, kind: JobKind, job: JobRecord) -> tuple[Task, Solved | None]:
        """Read what the job needs, and the stored result of the same request and inputs."""
        async with self._store.reading() as tx:
            request = await tx.jobs.request_of(job.id) or ""
            inputs = await kind.gather(tx, job, request)
            if kind.reads_database:
                inputs = {**inputs, DATABASE_URL: self._settings.database_url}
            task = Task(
                id=job.id, kind=job.kind, request=request, inputs=inputs, limits=self._settings.limits, now=self._now()
            )
            return task, await earlier_result(tx, kind, task, reuse_s=self._settings.reuse_s)

    async def _store_end(self, job: JobRecord, finished: Finished) -> None:
        await store_end(self._store, job, finished, worker=self._settings.id, now=self._now())
        if isinstance(finished.outcome, Solved) and finished.outcome.observed:
            self._metrics.observe_result(job.kind, finished.outcome.observed)

    async def _keep_beating(self) -> None:
        while not self._ended.is_set():
            self._beat_s = self._monotonic_s()
            try:
                await self._beat()
            except DatabaseUnavailableError as error:
                self._report_outage(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), BEAT_S)

    async def _beat(self) -> None:
        self._beats += 1
        async with self._store.transaction() as tx:
            if not await tx.workers.beat(self._settings.id, beats=self._beats):
                await tx.workers.put(self._record())
            for running in list(self._running.values()):  # others begin and end meanwhile
                if running.progress != running.stored:
                    phase, share = running.stored = running.progress
                    await tx.jobs.set_progress(running.job.id, worker=self._settings.id, phase=phase, share=share)
            held = await tx.jobs.held_by(self._settings.id)
        for job_id, running in self._running.items():
            if held.get(job_id, False) and not running.is_cancelled:
                running.is_cancelled = True
                if running.execution is not None:
                    running.execution.cancel()
        await self._take_over()
        await self._advance_waiting()

    async def _advance_waiting(self) -> None:
        """Store how many points of each sweep have ended, and queue it again after the last.

        Every worker does so at every beat, and only from what is stored: no kill can lose the end of a sweep.
        """
        async with self._store.reading() as tx:
            waiting = [job for job in await tx.jobs.waiting() if job.share != job.ended / job.children]
        if waiting:
            async with self._store.transaction() as tx:
                for job in waiting:
                    await tx.jobs.advance(job)
            self._wake.set()

    async def _take_over(self) -> None:
        """Queue the jobs of lost workers again."""
        async with self._store.reading() as tx:
            workers, orphans = await tx.workers.all(), await tx.jobs.orphan_workers()
        for name in self._watch.lost(workers, orphans=orphans, now_s=self._monotonic_s()):
            async with self._store.transaction() as tx:
                failure = lost(MAX_ATTEMPTS).to_json()
                await tx.jobs.requeue(worker=name, max_attempts=MAX_ATTEMPTS, at=self._now(), failure=failure)
                await tx.workers.remove(name)
            self._metrics.observe_lost_worker()
            log.warning("worker_lost", worker=name)

    async def _register(self) -> None:
        """Enter the table of workers; jobs of an earlier process with this id are queued again."""
        self._beat_s = self._monotonic_s()
        async with self._store.transaction() as tx:
            await self._requeue(tx, counted=True)
            await tx.workers.put(self._record())

    async def _end_jobs(self) -> None:
        """Let the running jobs end for a while, then end their executions."""
        tasks = [running.task for running in self._running.values() if running.task is not None]
        if not tasks:
            return
        await asyncio.wait(tasks, timeout=self._settings.grace_s)
        for running in self._running.values():
            running.is_requeued = True
            if running.execution is not None:
                running.execution.cancel()
        await asyncio.wait(tasks)

    async def _leave(self) -> None:
        """Requeue the remaining jobs, and remove the worker's row."""
        async with self._store.transaction() as tx:
            await self._requeue(tx, counted=False)
            await tx.workers.remove(self._settings.id)

    async def _requeue(self, tx: Transaction, *, counted: bool) -> None:
        await tx.jobs.requeue(
            worker=self._settings.id,
            max_attempts=MAX_ATTEMPTS,
            at=self._now(),
            failure=lost(MAX_ATTEMPTS).to_json(),
            counted=counted,
        )

    def _record(self) -> WorkerRecord:
        return WorkerRecord(
            id=self._settings.id,
            beats=self._beats,
            started_at=self._now(),
            version=version("fleetwright"),
        )

    def _report_outage(self, error: DatabaseUnavailableError) -> None:
        """Log an outage once a minute."""
        if (now_s := self._monotonic_s()) >= self._outage_logged_s + OUTAGE_LOG_S:
            self._outage_logged_s = now_s
            log.warning("worker_database_failed", failure=error.failure.value, cause=error.cause)

    async def _until_stored(self, work: Callable[[], Awaitable[T]]) -> T:
        """Repeat a transaction until the database takes it, or the worker stops."""
        while True:
            try:
                return await work()
            except DatabaseUnavailableError as error:
                self._report_outage(error)
                if self._stopping.is_set():
                    raise
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), RETRY_S)
