"""`/v1/faults/paths`: assign the connections of a job to cables."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.jobs.kinds import FAULT_PATHS
from api.schemas.fault_paths import PathsRequest, PathsResponse
from api.server.auth import Planner
from api.server.job_requests import ACCEPTED, PREFER, run_job, run_raw_job, text_of
from api.server.openapi import WITH_BODY, problems
from api.server.route import ServiceRoute, reads_raw
from api.server.routes.jobs import output_response
from api.server.service import Service, ServiceOf
from api.store import JobRecord

router = APIRouter(tags=["faults"], route_class=ServiceRoute)


async def _plan_raw(request: Request) -> Response:
    service: Service = request.app.state.service

    async def respond(job: JobRecord) -> Response:
        return await output_response(service, job)

    return await run_raw_job(request, service, kind=FAULT_PATHS, respond=respond)


@router.post(
    "/v1/faults/paths",
    name="Plan a job's paths",
    operation_id="plan_fault_paths",
    response_model=PathsResponse,
    responses=ACCEPTED | problems(*WITH_BODY),
    dependencies=[PREFER],
)
@reads_raw(_plan_raw)
async def plan_paths(
    body: PathsRequest,  # noqa: ARG001 - checked by FastAPI; the job reads the text
    request: Request,
    service: ServiceOf,
    principal: Planner,
) -> Response:
    """The least loaded assignment, compared with hashing.  The service keeps it only with its job."""

    async def respond(job: JobRecord) -> Response:
        return await output_response(service, job)

    text = text_of(await request.body())
    return await run_job(request, service, principal, kind=FAULT_PATHS, text=text, respond=respond)
