"""Keeps the jobs and the workers that do them.

A job changes from `queued` to `running` by one conditional update, so that one worker gets it.  Only the worker that
holds a job may finish it: a worker that was given up for lost cannot overwrite the result of its successor.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Final

from sqlalchemy import CursorResult, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from api.schemas.jobs import FINAL_STATES, JobState
from api.store.errors import KeyReusedError, KeyTakenError
from api.store.records import JobRecord, WorkerRecord
from api.store.repositories import Repository
from api.store.tables import JobRow, WorkerRow

JOB_HEAD: Final = [getattr(JobRow, field.name) for field in fields(JobRecord)]
_FINAL: Final = sorted(state.value for state in FINAL_STATES)


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """Is what the choice of the next job needs."""

    id: str
    project: str
    created_by: str


@dataclass(frozen=True, slots=True)
class LaneCount:
    lane: str
    state: str
    jobs: int
    oldest: datetime | None


class JobRepository(Repository):
    async def add(self, job: JobRecord, *, request: str) -> None:
        """Store a new job.  KeyTakenError: its caller has used the key before."""
        try:
            await self._connection.execute(insert(JobRow).values(**asdict(job), request=request))
        except IntegrityError as error:
            raise KeyTakenError(f"the key {job.key!r} is taken") from error

    async def get(self, job_id: str) -> JobRecord | None:
        return _job(await self._row(select(*JOB_HEAD).where(JobRow.id == job_id)))

    async def newest_id(self) -> str | None:
        return (await self._connection.execute(select(func.max(JobRow.id)))).scalar_one()

    async def request_of(self, job_id: str) -> str | None:
        """Return the request; None once the job is done."""
        row = await self._row(select(JobRow.request).where(JobRow.id == job_id))
        return row["request"] if row is not None else None

    async def output_of(self, job_id: str) -> str | None:
        row = await self._row(select(JobRow.output).where(JobRow.id == job_id))
        return row["output"] if row is not None else None

    async def find_key(self, *, created_by: str, key: str, fingerprint: str, since: datetime) -> JobRecord | None:
        """Return the caller's job with this key.  KeyReusedError: it is the key of another request."""
        own = (JobRow.created_by == created_by, JobRow.key == key, JobRow.created_at >= since)
        job = _job(await self._row(select(*JOB_HEAD).where(*own)))
        if job is not None and job.fingerprint != fingerprint:
            raise KeyReusedError(f"the key {key!r} was used for another request")
        return job

    async def free_key(self, *, created_by: str, key: str, before: datetime) -> None:
        """Take the key from a job that is older."""
        own = (JobRow.created_by == created_by, JobRow.key == key, JobRow.created_at < before)
        await self._connection.execute(update(JobRow).where(*own).values(key=None))

    async def page(
        self,
        *,
        before_id: str | None,
        limit: int,
        project: str | None = None,
        states: Collection[str] = (),
        kind: str | None = None,
        created_by: str | None = None,
        parent: str | None = None,
    ) -> list[JobRecord]:
        """Return the newest jobs before an id."""
        query = select(*JOB_HEAD).order_by(JobRow.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(JobRow.id < before_id)
        if states:
            query = query.where(JobRow.state.in_(sorted(states)))
        for column, value in (
            (JobRow.project, project),
            (JobRow.kind, kind),
            (JobRow.created_by, created_by),
            (JobRow.parent, parent),
        ):
            if value is not None:
                query = query.where(column == value)
        return [JobRecord(**row) for row in await self._rows(query)]

    async def queued(self, *, lane: str, limit: int) -> list[QueuedJob]:
        """Return the jobs that wait in a lane, oldest first."""
        query = select(JobRow.id, JobRow.project, JobRow.created_by).where(
            JobRow.state == JobState.QUEUED.value, JobRow.lane == lane
        )
        return [QueuedJob(**row) for row in await self._rows(query.order_by(JobRow.id).limit(limit))]

    async def queued_lanes(self) -> list[str]:
        """Return the lanes in which a job waits."""
        query = select(JobRow.lane).where(JobRow.state == JobState.QUEUED.value).distinct()
        return [row["lane"] for row in await self._rows(query)]

    async def running(self, *, lane: str) -> list[QueuedJob]:
        query = select(JobRow.id, JobRow.project, JobRow.created_by).where(
            JobRow.state == JobState.RUNNING.value, JobRow.lane == lane
        )
        return [QueuedJob(**row) for row in await self._rows(query)]

    async def count_queued(self, *, lane: str, created_by: str | None = None, before_id: str | None = None) -> int:
        query = (
            select(func.count()).select_from(JobRow).where(JobRow.state == JobState.QUEUED.value, JobRow.lane == lane)
        )
        if created_by is not None:
            query = query.where(JobRow.created_by == created_by)
        if before_id is not None:
            query = query.where(JobRow.id < before_id)
        return int((await self._connection.execute(query)).scalar_one())

    async def claim(self, job_id: str, *, worker: str, at: datetime) -> bool:
        """Give a waiting job to a worker; False when another worker was faster."""
        return await self._changed(
            update(JobRow)
            .where(JobRow.id == job_id, JobRow.state == JobState.QUEUED.value)
            .values(
                state=JobState.RUNNING.value,
                worker=worker,
                started_at=at,
                attempts=JobRow.attempts + 1,
                phase=None,
                share=None,
            )
        )

    async def set_progress(self, job_id: str, *, worker: str, phase: str | None, share: float | None) -> None:
        await self._changed(_held(job_id, worker).values(phase=phase, share=share))

    async def finish(
        self,
        job_id: str,
        *,
        worker: str,
        state: JobState,
        at: datetime,
        output: str | None = None,
        failure: str | None = None,
        cpu_s: float | None = None,
    ) -> bool:
        """End a job; False when the worker no longer holds it.  A job without a result gives its key back."""
        values: dict[str, Any] = {"key": None} if state is not JobState.SUCCEEDED else {}
        return await self._changed(
            _held(job_id, worker).values(
                state=state.value,
                finished_at=at,
                output=output,
                failure=failure,
                cpu_s=cpu_s,
                request=None,
                **values,
            )
        )

    async def cancel_queued(self, job_id: str, *, at: datetime) -> bool:
        """End a job that no worker has; False otherwise."""
        return await self._changed(
            update(JobRow)
            .where(JobRow.id == job_id, JobRow.state == JobState.QUEUED.value)
            .values(state=JobState.CANCELLED.value, finished_at=at, request=None, key=None, cancel_requested=True)
        )

    async def request_cancel(self, job_id: str) -> bool:
        """Request the worker of a running job to end it."""
        return await self._changed(
            update(JobRow)
            .where(JobRow.id == job_id, JobRow.state == JobState.RUNNING.value)
            .values(cancel_requested=True)
        )

    async def held_by(self, worker: str) -> dict[str, bool]:
        """Return the running jobs of a worker, and whether each is to be cancelled."""
        query = select(JobRow.id, JobRow.cancel_requested).where(
            JobRow.state == JobState.RUNNING.value, JobRow.worker == worker
        )
        return {row["id"]: row["cancel_requested"] for row in await self._rows(query)}

    async def finished_among(self, job_ids: Sequence[str]) -> list[str]:
        """Return those of the jobs that have ended."""
        query = select(JobRow.id).where(JobRow.id.in_(job_ids), JobRow.state.in_(_FINAL))
        return [row["id"] for row in await self._rows(query)]

    async def some(self, job_ids: Sequence[str]) -> list[JobRecord]:
        return [JobRecord(**row) for row in await self._rows(select(*JOB_HEAD).where(JobRow.id.in_(job_ids)))]

    async def requeue(self, *, worker: str, max_attempts: int, at: datetime, failure: str, counted: bool = True) -> int:
        """Queue the running jobs of a worker again; end those that were started too often.

        `counted`: the start counts as an attempt; a worker that shuts down gives its jobs back uncounted.
        """
        held = (JobRow.state == JobState.RUNNING.value, JobRow.worker == worker)
        ended = {"finished_at": at, "request": None, "key": None}
        await self._changed(
            update(JobRow)
            .where(*held, JobRow.cancel_requested.is_(True))
            .values(state=JobState.CANCELLED.value, **ended)
        )
        if counted:
            await self._changed(
                update(JobRow)
                .where(*held, JobRow.attempts >= max_attempts)
                .values(state=JobState.FAILED.value, failure=failure, **ended)
            )
        found: CursorResult[Any] = await self._connection.execute(
            update(JobRow)
            .where(*held)
            .values(
                state=JobState.QUEUED.value,
                worker=None,
                started_at=None,
                phase=None,
                share=None,
                attempts=JobRow.attempts if counted else JobRow.attempts - 1,
            )
        )
        return found.rowcount

    async def orphan_workers(self) -> list[str]:
        """Return the workers of running jobs that are not in the table of workers."""
        query = (
            select(JobRow.worker)
            .where(JobRow.state == JobState.RUNNING.value, JobRow.worker.not_in(select(WorkerRow.id)))
            .distinct()
        )
        return [row["worker"] for row in await self._rows(query)]

    async def counts(self) -> list[LaneCount]:
        """Return how many jobs wait and run in each lane, and since when the oldest one does."""
        query = (
            select(JobRow.lane, JobRow.state, func.count().label("jobs"), func.min(JobRow.created_at).label("oldest"))
            .where(or_(JobRow.state == JobState.QUEUED.value, JobRow.state == JobState.RUNNING.value))
            .group_by(JobRow.lane, JobRow.state)
        )
        return [LaneCount(**row) for row in await self._rows(query)]

    async def _changed(self, statement: Any) -> bool:
        found: CursorResult[Any] = await self._connection.execute(statement)
        return found.rowcount > 0


class WorkerRepository(Repository):
    async def put(self, worker: WorkerRecord) -> None:
        values = asdict(worker)
        await self._upsert(WorkerRow, {"id": values.pop("id")}, values)

    async def beat(self, worker_id: str, *, beats: int) -> bool:
        """Count one more beat; False when others took the worker for lost."""
        found: CursorResult[Any] = await self._connection.execute(
            update(WorkerRow).where(WorkerRow.id == worker_id).values(beats=beats)
        )
        return found.rowcount > 0

    async def all(self) -> list[WorkerRecord]:
        return [WorkerRecord(**row) for row in await self._rows(select(WorkerRow.__table__).order_by(WorkerRow.id))]

    async def remove(self, worker_id: str) -> None:
        await self._connection.execute(delete(WorkerRow).where(WorkerRow.id == worker_id))


def _held(job_id: str, worker: str) -> Any:
    held = (JobRow.id == job_id, JobRow.state == JobState.RUNNING.value, JobRow.worker == worker)
    return update(JobRow).where(*held)


def _job(row: Mapping[str, Any] | None) -> JobRecord | None:
    return JobRecord(**row) if row is not None else None
