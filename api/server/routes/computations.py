"""Builds the route of every computation: `POST` computes, and only the job keeps the result."""

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.jobs.computations import COMPUTATIONS, Computation
from api.server.auth import Planner
from api.server.job_requests import ACCEPTED, PREFER, run_job, run_raw_job, text_of
from api.server.openapi import WITH_BODY, problems
from api.server.route import ServiceRoute, add_routes, reads_raw
from api.server.routes.jobs import output_response
from api.server.service import Service, ServiceOf


def computation_routes() -> APIRouter:
    router = APIRouter(route_class=ServiceRoute)
    for computation in COMPUTATIONS:
        add_routes(router, _route(computation), tags=[computation.tag])
    return router


def _route(computation: Computation[Any]) -> APIRouter:
    router = APIRouter(route_class=ServiceRoute)

    async def compute_raw(request: Request) -> Response:
        service: Service = request.app.state.service
        respond = partial(output_response, service)
        return await run_raw_job(request, service, kind=computation.name, respond=respond)

    @router.post(
        f"/v1/{computation.path}",
        name=computation.title,
        description=f"{computation.text}  The service keeps it only with its job.",
        operation_id=computation.operation,
        response_model=computation.response,
        responses=ACCEPTED | problems(*WITH_BODY),
        dependencies=[PREFER],
    )
    @reads_raw(compute_raw)
    async def compute(
        body: computation.request,  # type: ignore[name-defined]  # noqa: ARG001 - checked here; the job reads the text
        request: Request,
        service: ServiceOf,
        principal: Planner,
    ) -> Response:
        text, respond = text_of(await request.body()), partial(output_response, service)
        return await run_job(request, service, principal, kind=computation.name, text=text, respond=respond)

    return router
