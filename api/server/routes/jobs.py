"""`/v1/jobs`: the work that requests have asked for, with state, progress, cancellation and events."""

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from api.schemas.events import EVENT_STREAM
from api.schemas.jobs import Job, JobState
from api.schemas.pages import Page
from api.schemas.tokens import TokenScope
from api.server.auth import Planner, Principal, Reader
from api.server.cursors import Paging
from api.server.jobs import positions, raise_failure, show_job
from api.server.openapi import Responses, problems
from api.server.problems import ProblemError, conflict, not_found
from api.server.projects import ProjectAccess, ProjectOf
from api.server.route import ServiceRoute
from api.server.service import Service, ServiceOf
from api.store import ID_PATTERN, JobRecord, Transaction

EVENT_POLL_S: Final = 0.25
KEEP_ALIVE_S: Final = 15.0
JobId = Annotated[str, Path(alias="id", pattern=ID_PATTERN)]
EVENT_SCHEMA: Final = {
    "type": "object",
    "properties": {"event": {"const": "job"}, "data": {"type": "string", "description": "A job as JSON."}},
}
EVENTS: Responses = {
    200: {
        "description": "Events `job` with the job as data, at every change until its end.",
        "content": {EVENT_STREAM: {"schema": EVENT_SCHEMA}},
    }
}
OUTPUT: Responses = {200: {"description": "What the job has made.", "content": {"application/json": {"schema": {}}}}}

router = APIRouter(tags=["jobs"], route_class=ServiceRoute)


@router.get("/v1/jobs", name="List jobs", operation_id="list_jobs", responses=problems())
async def list_jobs(
    *,
    service: ServiceOf,
    _principal: Reader,
    project: ProjectOf,
    paging: Paging,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    kind: Annotated[str | None, Query(max_length=32, description="Only jobs of this kind.")] = None,
    created_by: Annotated[str | None, Query(max_length=200, description="Only jobs of this caller.")] = None,
    parent: Annotated[
        str | None, Query(pattern=ID_PATTERN, description="The jobs that this one has created, instead of all others.")
    ] = None,
) -> Page[Job]:
    """Jobs, newest first."""
    before = paging.start(str)
    async with service.store.reading() as tx:
        found = await tx.jobs.page(
            before_id=before,
            limit=paging.limit + 1,
            project=project.visible,
            states=() if state is None else (state.value,),
            kind=kind,
            created_by=created_by,
            parent=parent,
        )
        places = await positions(tx, found)
    shown = [show_job(job, position=place) for job, place in zip(found, places, strict=True)]
    return paging.page(shown, position=lambda last: last.id)


@router.get("/v1/jobs/{id}", name="Read a job", operation_id="get_job", responses=problems(404))
async def get_job(job_id: JobId, service: ServiceOf, _principal: Reader, project: ProjectOf) -> Job:
    """One job, with its place in the queue, its progress, and its result or problem."""
    return await _shown(service, job_id, project)


@router.delete(
    "/v1/jobs/{id}",
    name="Cancel a job",
    operation_id="cancel_job",
    status_code=HTTPStatus.ACCEPTED,
    responses=problems(404, 409),
)
async def cancel_job(job_id: JobId, service: ServiceOf, principal: Planner, project: ProjectOf) -> Job:
    """A waiting job ends at once, a running one within a second.  Only its creator or an admin may."""
    async with service.store.reading() as tx:
        job = await _stored(tx, job_id, project)
    _refuse_other(principal, job)
    if JobState(job.state).is_final and job.state != JobState.CANCELLED:
        raise conflict(f"job {job_id} has {job.state} already")
    return show_job(await service.jobs.cancel(job_id))


@router.get(
    "/v1/jobs/{id}/output",
    name="Read a job's output",
    operation_id="get_job_output",
    response_class=Response,
    responses=OUTPUT | problems(404, 409),
)
async def get_output(job_id: JobId, service: ServiceOf, _principal: Reader, project: ProjectOf) -> Response:
    """What a job has made that is stored nowhere else, such as an export."""
    async with service.store.reading() as tx:
        job = await _stored(tx, job_id, project)
    if not JobState(job.state).is_final:
        raise conflict(f"job {job_id} is {job.state}: it has no output yet")
    raise_failure(job)
    return await output_response(service, job)


@router.get(
    "/v1/jobs/{id}/events",
    name="Follow a job",
    operation_id="follow_job",
    response_class=Response,
    responses=EVENTS | problems(404),
)
async def follow_job(
    job_id: JobId, request: Request, service: ServiceOf, _principal: Reader, project: ProjectOf
) -> Response:
    """Server-sent events: the job at every change, until its end."""
    first = await _shown(service, job_id, project)
    return StreamingResponse(
        _events(request, service, first, project), media_type=EVENT_STREAM, headers={"X-Accel-Buffering": "no"}
    )


async def output_response(service: Service, job: JobRecord, *, media_type: str = "application/json") -> Response:
    """Respond with what the job itself keeps."""
    async with service.store.reading() as tx:
        output = await tx.jobs.output_of(job.id)
    if output is None:
        raise not_found(f"output of job {job.id}: it is stored at its result")
    return Response(content=output, media_type=media_type)


async def _events(request: Request, service: Service, job: Job, project: ProjectAccess) -> AsyncIterator[str]:
    quiet_s = 0.0
    yield _event(job)
    while not job.state.is_final and not await request.is_disconnected():
        await asyncio.sleep(EVENT_POLL_S)
        now = await _shown(service, job.id, project)
        quiet_s += EVENT_POLL_S
        if now != job:
            job, quiet_s = now, 0.0
            yield _event(job)
        elif quiet_s >= KEEP_ALIVE_S:
            quiet_s = 0.0
            yield ": keep-alive\n\n"


def _event(job: Job) -> str:
    return f"event: job\ndata: {job.model_dump_json()}\n\n"


async def _stored(tx: Transaction, job_id: str, project: ProjectAccess) -> JobRecord:
    job = await tx.jobs.get(job_id)
    if job is None or not project.includes(job.project):
        raise not_found(f"job {job_id}")
    return job


async def _shown(service: Service, job_id: str, project: ProjectAccess) -> Job:
    async with service.store.reading() as tx:
        job = await _stored(tx, job_id, project)
        (place,) = await positions(tx, [job])
    return show_job(job, position=place)


def _refuse_other(principal: Principal, job: JobRecord) -> None:
    if job.created_by != principal.actor and not principal.allows(TokenScope.ADMIN):
        raise ProblemError(
            status=HTTPStatus.FORBIDDEN,
            kind="forbidden",
            detail=f"job {job.id} belongs to {job.created_by}; allowed: its creator, or scope 'admin'",
        )
