"""Keeps the jobs and the workers that do them.

A job changes from `queued` to `running` by one conditional update, so that one worker gets it.  Only the worker that
holds a job may finish it: a worker that was given up for lost cannot overwrite the result of its successor.  A job that
has created others is `waiting` and held by no worker, until all of them have ended.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Final

from sqlalchemy import CursorResult, case, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import aliased

from api.schemas.jobs import FINAL_STATES, JobState
from api.store.errors import KeyReusedError, KeyTakenError
from api.store.records import JobRecord, WorkerRecord
from api.store.repositories import Repository
from api.store.tables import JobRow, WorkerRow

JOB_HEAD: Final = [getattr(JobRow, field.name) for field in fields(JobRecord)]
_FINAL: Final = sorted(state.value for state in FINAL_STATES)
_PENDING: Final = (JobState.QUEUED.value, JobState.WAITING.value)
POINTS: Final = "points"  # the phase of a job that waits for others


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """Is what the choice of the next job needs."""

    id: str
    project: str
    created_by: str
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class ChildJob:
    """Is what a job that a sweep has created has made."""

    state: str
    output: str | None
    failure: str | None  # JSON of a problem


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """Counts the jobs that a waiting one has created."""

    id: str
    share: float | None  # as stored
    children: int
    ended: int


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
        """Return the newest jobs before an id: those that `parent` has created, or those of requests."""
        query = select(*JOB_HEAD).order_by(JobRow.id.desc()).limit(limit)
        if before_id is not None:
            query = query.where(JobRow.id < before_id)
        query = query.where(JobRow.parent == parent if parent is not None else JobRow.parent.is_(None))
        if states:
            query = query.where(JobRow.state.in_(sorted(states)))
        for column, value in (
            (JobRow.project, project),
            (JobRow.kind, kind),
            (JobRow.created_by, created_by),
        ):
            if value is not None:
                query = query.where(column == value)
        return [JobRecord(**row) for row in await self._rows(query)]

    async def oldest_queued(self, *, lane: str) -> list[QueuedJob]:
        """Return the oldest job that waits in a lane, of each caller and of each sweep."""
        groups = (JobRow.project, JobRow.created_by, JobRow.parent)
        query = select(func.min(JobRow.id).label("id"), *groups).where(
            JobRow.state == JobState.QUEUED.value, JobRow.lane == lane
        )
        return [QueuedJob(**row) for row in await self._rows(query.group_by(*groups))]

    async def queued_lanes(self) -> list[str]:
        """Return the lanes in which a job waits."""
        query = select(JobRow.lane).where(JobRow.state == JobState.QUEUED.value).distinct()
        return [row["lane"] for row in await self._rows(query)]

    async def running(self, *, lane: str) -> list[QueuedJob]:
        query = select(JobRow.id, JobRow.project, JobRow.created_by, JobRow.parent).where(
            JobRow.state == JobState.RUNNING.value, JobRow.lane == lane
        )
        return [QueuedJob(**row) for row in await self._rows(query)]

    async def count_queued(self, *, lane: str, created_by: str | None = None, before_id: str | None = None) -> int:
        """Count the requests that wait in a lane: without the jobs that sweeps have created, but with the sweeps."""
        query = (
            select(func.count())
            .select_from(JobRow)
            .where(JobRow.state.in_(_PENDING), JobRow.lane == lane, JobRow.parent.is_(None))
        )
        if created_by is not None:
            query = query.where(JobRow.created_by == created_by)
        if before_id is not None:
            query = query.where(JobRow.id < before_id)
        return int((await self._connection.execute(query)).scalar_one())

    async def count_points(self, *, created_by: str) -> int:
        """Count the jobs of a caller's sweeps that wait."""
        query = select(func.count()).where(
            JobRow.state == JobState.QUEUED.value, JobRow.created_by == created_by, JobRow.parent.is_not(None)
        )
        return int((await self._connection.execute(query)).scalar_one())

    async def claim(self, job_id: str, *, worker: str, at: datetime) -> bool:
        """Give a waiting job to a worker; False when another worker was faster."""
        return await self._changed(
            update(JobRow)
            .where(JobRow.id == job_id, JobRow.state == JobState.QUEUED.value)
            .values(
                state=JobState.RUNNING.value,
                worker=worker,
                started_at=func.coalesce(JobRow.started_at, at),  # of a sweep: that of its first run
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

    async def expand(
        self, job_id: str, *, worker: str, kept: str, cpu_s: float, children: Sequence[tuple[JobRecord, str]]
    ) -> bool:
        """Store the jobs that a running one has created, with their requests, and let it wait for them.

        False when the worker no longer holds it, or it is to be cancelled: then nothing is stored.
        """
        waits = await self._changed(
            _held(job_id, worker)
            .where(JobRow.cancel_requested.is_(False))
            .values(
                state=JobState.WAITING.value, worker=None, output=kept, phase=POINTS, share=0.0, cpu_s=cpu_s, attempts=0
            )
        )
        if waits:
            rows = [{**asdict(child), "request": request} for child, request in children]
            await self._connection.execute(insert(JobRow), rows)
        return waits

    async def children(self, job_id: str) -> list[ChildJob]:
        """Return the jobs that a job has created, in the order of their creation."""
        query = select(JobRow.state, JobRow.output, JobRow.failure).where(JobRow.parent == job_id)
        return [ChildJob(**row) for row in await self._rows(query.order_by(JobRow.id))]

    async def waiting(self) -> list[WaitingJob]:
        """Return the jobs that wait for others."""
        child = aliased(JobRow)
        query = (
            select(
                JobRow.id,
                JobRow.share,
                func.count().label("children"),
                func.sum(case((child.state.in_(_FINAL), 1), else_=0)).label("ended"),
            )
            .join(child, child.parent == JobRow.id)
            .where(JobRow.state == JobState.WAITING.value)
            .group_by(JobRow.id, JobRow.share)
        )
        return [WaitingJob(**row) for row in await self._rows(query.order_by(JobRow.id))]

    async def advance(self, waiting: WaitingJob) -> None:
        """Store the progress of a waiting job; queue it again once the others have ended."""
        values: dict[str, Any] = {"share": waiting.ended / waiting.children}
        if waiting.ended == waiting.children:
            values = {"state": JobState.QUEUED.value, "phase": None, "share": None}
        await self._changed(
            update(JobRow).where(JobRow.id == waiting.id, JobRow.state == JobState.WAITING.value).values(**values)
        )

    async def cancel(self, job_id: str, *, at: datetime) -> bool:
        """End a job that no worker has, or request its worker to end it; the same for the jobs that it has created.

        False when it has ended before.  One update decides for each job, so that no change of its state comes between.
        """
        found = await self._changed(_cancelling(JobRow.id == job_id, at))
        if found:  # in a second statement, which reads the jobs that were created until the first had its lock
            await self._changed(_cancelling(JobRow.parent == job_id, at))
        return found

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
            select(
                JobRow.lane,
                JobRow.state,
                func.count().label("jobs"),
                # A sweep's points wait for each other.
                func.min(case((JobRow.parent.is_(None), JobRow.created_at))).label("oldest"),
            )
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


def _cancelling(which: Any, at: datetime) -> Any:
    pending = JobRow.state.in_(_PENDING)
    return (
        update(JobRow)
        .where(which, or_(pending, JobRow.state == JobState.RUNNING.value))
        .values(
            cancel_requested=True,
            state=case((pending, JobState.CANCELLED.value), else_=JobRow.state),
            finished_at=case((pending, at), else_=JobRow.finished_at),
            request=case((pending, None), else_=JobRow.request),
            key=case((pending, None), else_=JobRow.key),
        )
    )


def _job(row: Mapping[str, Any] | None) -> JobRecord | None:
    return JobRecord(**row) if row is not None else None
