"""Accepts jobs for the workers and waits for their ends.

One task of the process polls for all requests that wait, so that a hundred of them cost one query.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from math import inf
from typing import Final

from fastapi import Request

from api.jobs.kinds import JOB_KINDS, JobKind
from api.jobs.outcome import JobFailure
from api.jobs.results import SWEEP_KIND
from api.schemas.jobs import FINAL_STATES, Job, JobState, Lane
from api.schemas.labels import ResultNaming
from api.schemas.problems import PROBLEM_TYPE_PREFIX, ProblemDetails
from api.schemas.projects import DEFAULT_PROJECT
from api.server.auth import chosen_project
from api.server.context import current_request_id
from api.server.problems import ProblemError, not_found
from api.server.projects import refuse_over_quota
from api.server.settings import Settings
from api.store import DatabaseUnavailableError, JobRecord, KeyTakenError, Store, Transaction, new_id
from api.tracing import current_traceparent

FIRST_POLL_S: Final = 0.005
LAST_POLL_S: Final = 0.1
GROWTH: Final = 1.3
LANE_MAX: Final = 10_000  # queued jobs of all callers
RETRY_AFTER_S: Final = "5"
DISCONNECT_POLL_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """Is what a request submits."""

    kind: str
    request: str
    actor: str
    project: str = DEFAULT_PROJECT
    subject: str | None = None
    parent: str | None = None
    naming: ResultNaming | None = None
    key: str | None = None
    fingerprint: str | None = None


@dataclass(slots=True)
class _Waiting:
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None


class Jobs:
    def __init__(self, *, store: Store, settings: Settings, now: Callable[[], datetime]) -> None:
        self._store = store
        self._settings = settings
        self._now = now
        self._waiting: dict[str, list[_Waiting]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._new_waiter = asyncio.Event()
        self._closing = False
        self.on_accepted: Callable[[], None] = lambda: None  # a worker in this process wakes up

    async def accept(self, new: NewJob) -> tuple[JobRecord, bool]:
        """Store a job; return it, and whether an earlier request with the same key had stored it."""
        kind = JOB_KINDS[new.kind]
        if (earlier := await self._of_key(new)) is not None:
            return earlier, True
        now = self._now()
        job = JobRecord(
            id="",  # made in the transaction, after the newest one
            kind=new.kind,
            lane=kind.lane.value,
            state=JobState.QUEUED.value,
            project=new.project,
            created_at=now,
            created_by=new.actor,
            request_id=current_request_id(),
            key=new.key,
            fingerprint=new.fingerprint,
            parent=new.parent,
            subject=new.subject,
            deadline_s=self._settings.job_deadline_s,
            trace=current_traceparent(),
            naming=new.naming.model_dump_json() if new.naming is not None else None,
        )
        try:
            async with self._store.transaction() as tx:
                await self._refuse_full(tx, kind, new)
                await refuse_over_quota(
                    tx,
                    new.project,
                    now=now,
                    # The evidence of a fault waits for no quota of work.
                    job_kind=new.kind if kind.lane is not Lane.SAFETY else None,
                    new_bytes=len(new.request),
                )
                job = replace(job, id=new_id(now, after=await tx.newest_id(new.kind)))
                if new.key is not None:
                    await tx.jobs.free_key(created_by=new.actor, key=new.key, before=self._keys_since())
                await tx.jobs.add(job, request=new.request)
        except KeyTakenError:
            if (earlier := await self._of_key(new)) is None:
                raise
            return earlier, True
        self.on_accepted()
        return job, False

    async def wait(
        self, job: JobRecord, *, timeout_s: float | None = None, request: Request | None = None
    ) -> JobRecord:
        """Return the job once it has ended, or as it is after `timeout_s`.

        A caller that disconnects cancels its job, unless it can repeat the request by its key.
        """
        if JobState(job.state).is_final:
            return job
        waiting = _Waiting()
        self._waiting.setdefault(job.id, []).append(waiting)
        self._new_waiter.set()
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())
        clock_s = asyncio.get_running_loop().time
        end_s = inf if timeout_s is None else clock_s() + timeout_s
        try:
            while not waiting.ended.is_set() and clock_s() < end_s:
                with suppress(TimeoutError):
                    await asyncio.wait_for(waiting.ended.wait(), min(DISCONNECT_POLL_S, end_s - clock_s()))
                if request is not None and job.key is None and await request.is_disconnected():
                    await self.cancel(job.id)
                    break
        finally:
            self._waiting[job.id].remove(waiting)
            if not self._waiting[job.id]:
                del self._waiting[job.id]
        if waiting.error is not None:
            raise waiting.error
        async with self._store.reading() as tx:
            return await _existing(tx, job.id)

    async def cancel(self, job_id: str) -> JobRecord:
        """End a job, or request its worker to end it."""
        async with self._store.transaction() as tx:
            await tx.jobs.cancel(job_id, at=self._now())
            return await _existing(tx, job_id)

    def stop_waiting(self) -> None:
        """Refuse every request that waits: the process ends, its jobs go on."""
        self._closing = True
        self._fail(_shutting_down())

    async def close(self) -> None:
        self.stop_waiting()
        self._new_waiter.set()
        if self._poller is not None:  # not cancelled: a cancelled query leaks its connection
            await asyncio.gather(self._poller, return_exceptions=True)

    async def _of_key(self, new: NewJob) -> JobRecord | None:
        if new.key is None:
            return None
        async with self._store.reading() as tx:
            return await tx.jobs.find_key(
                created_by=new.actor, key=new.key, fingerprint=new.fingerprint or "", since=self._keys_since()
            )

    def _keys_since(self) -> datetime:
        return self._now() - timedelta(seconds=self._settings.idempotency_ttl_s)

    async def _refuse_full(self, tx: Transaction, kind: JobKind, new: NewJob) -> None:
        allowed = self._settings.jobs_queued_per_caller
        if (waiting := await tx.jobs.count_queued(lane=kind.lane, created_by=new.actor)) >= allowed:
            raise _queue_full(f"{waiting} jobs of this token wait in lane {kind.lane.value}, at most {allowed} may")
        if (waiting := await tx.jobs.count_queued(lane=kind.lane)) >= LANE_MAX:
            raise _queue_full(f"{waiting:,} jobs wait in lane {kind.lane.value}, at most {LANE_MAX:,} may")
        if new.kind == SWEEP_KIND.type.name:
            points, allowed = await tx.jobs.count_points(created_by=new.actor), self._settings.sweep_points
            if points >= allowed:
                raise _queue_full(f"{points:,} points of sweeps of this token wait, at most {allowed:,} may")

    async def _poll(self) -> None:
        delay_s = FIRST_POLL_S
        while self._waiting and not self._closing:
            try:
                async with self._store.reading() as tx:
                    ended = await tx.jobs.finished_among(list(self._waiting))
            except DatabaseUnavailableError as error:
                self._fail(error)
                return
            for job_id in ended:
                for waiting in self._waiting.get(job_id, ()):
                    waiting.ended.set()
            self._new_waiter.clear()
            delay_s = FIRST_POLL_S if ended else min(LAST_POLL_S, delay_s * GROWTH)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._new_waiter.wait(), delay_s)
                delay_s = FIRST_POLL_S

    def _fail(self, error: Exception) -> None:
        for each in self._waiting.values():
            for waiting in each:
                waiting.error = error
                waiting.ended.set()


async def _existing(tx: Transaction, job_id: str) -> JobRecord:
    if (job := await tx.jobs.get(job_id)) is None:
        raise not_found(f"job {job_id}")
    return job


def fingerprint_of(request: Request, body: bytes) -> str:
    """Hash method, path and body, as release 0.2.0 does; and the query and the project, where a request has them."""
    digest = hashlib.sha256(f"{request.method} {request.url.path}\n".encode())
    if request.url.query:
        digest.update(f"?{request.url.query}\n".encode())
    if (project := chosen_project(request)) is not None:
        digest.update(f"{project}\n".encode())
    digest.update(body)
    return digest.hexdigest()


def show_job(job: JobRecord, *, position: int | None = None) -> Job:
    """Return the API's view of a job."""
    failure = JobFailure.from_json(job.failure) if job.failure is not None else None
    shown = {name: getattr(job, name) for name in Job.model_fields if hasattr(job, name)}
    naming = ResultNaming.model_validate_json(job.naming) if job.naming is not None else ResultNaming()
    return Job(
        **shown,
        **naming.model_dump(),
        position=position,
        result=_result(job),
        problem=_details(failure, job) if failure is not None else None,
    )


async def positions(tx: Transaction, jobs: Sequence[JobRecord]) -> list[int | None]:
    return [
        await tx.jobs.count_queued(lane=job.lane, before_id=job.id) if job.state == JobState.QUEUED else None
        for job in jobs
    ]


def raise_failure(job: JobRecord) -> None:
    """Raise the problem of a job that has no result."""
    if job.state not in FINAL_STATES or job.state == JobState.SUCCEEDED:
        return
    failure = (
        JobFailure.from_json(job.failure)
        if job.failure is not None
        else JobFailure(HTTPStatus.CONFLICT, "job-cancelled", f"job {job.id} was cancelled")
    )
    retry = {"Retry-After": RETRY_AFTER_S} if failure.status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    raise ProblemError(
        status=HTTPStatus(failure.status),
        kind=failure.kind,
        detail=failure.detail,
        errors=failure.field_problems(),
        headers=retry,
    )


def _result(job: JobRecord) -> str | None:
    if job.state != JobState.SUCCEEDED:
        return None
    kind = JOB_KINDS.get(job.kind)
    return f"/v1/{kind.path}/{job.id}" if kind is not None and kind.path is not None else f"/v1/jobs/{job.id}/output"


def _details(failure: JobFailure, job: JobRecord) -> ProblemDetails:
    return ProblemDetails(
        type=PROBLEM_TYPE_PREFIX + failure.kind,
        title=HTTPStatus(failure.status).phrase,
        status=failure.status,
        detail=failure.detail,
        instance=f"/v1/jobs/{job.id}",
        errors=tuple(failure.field_problems()),
        request_id=job.request_id,
    )


def _queue_full(detail: str) -> ProblemError:
    return ProblemError(
        status=HTTPStatus.TOO_MANY_REQUESTS,
        kind="queue-full",
        detail=detail,
        headers={"Retry-After": RETRY_AFTER_S},
    )


def _shutting_down() -> ProblemError:
    return ProblemError(
        status=HTTPStatus.SERVICE_UNAVAILABLE,
        kind="shutting-down",
        detail="this replica ends; the job goes on: send the request again with its Idempotency-Key",
        headers={"Retry-After": "1"},
    )
