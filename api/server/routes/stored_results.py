"""Builds the routes of every kind of stored result: create, list, read; and export, for placements."""

import json
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from pydantic_core import to_jsonable_python

from api.jobs.kinds import PLACEMENT_EXPORT
from api.jobs.results import KINDS, PLACEMENT_KIND, ResultKind, ResultT
from api.schemas.pages import Page
from api.schemas.results import RequestT, ResultHead
from api.server.auth import Planner, Reader
from api.server.cursors import Paging
from api.server.dependencies import parameters_of
from api.server.idempotency import IdempotencyKey
from api.server.job_requests import ACCEPTED, PREFER, run_job, run_raw_job, text_of
from api.server.openapi import WITH_BODY, Responses, problems
from api.server.problems import not_found
from api.server.projects import PROJECT, WHOLE_FLEET, ProjectAccess, ProjectOf
from api.server.result_query import NAMING, ResultQuery, SolvedQuery, naming_of
from api.server.route import ServiceRoute, add_routes, reads_raw
from api.server.routes.jobs import output_response
from api.server.service import Service, ServiceOf
from api.store import ID_PATTERN, JobRecord, ResultSummary, StoredResult, canonical_json
from placement.formats.engine_writers import Engine

JSON, YAML = "application/json", "application/yaml"
EXPORTED: Responses = {
    200: {
        "description": "YAML for TensorRT-LLM, JSON for the others.",
        "content": {JSON: {"schema": {"type": "object"}}, YAML: {"schema": {"type": "string"}}},
    }
}


def result_routes() -> APIRouter:
    router = APIRouter(route_class=ServiceRoute)
    for kind in KINDS:
        for routes in (_create_route(kind), _read_routes(kind)):
            add_routes(router, routes, tags=[kind.tag])
    add_routes(router, _export_route(), tags=[PLACEMENT_KIND.tag])
    return router


def _create_route(kind: ResultKind[RequestT, ResultT]) -> APIRouter:
    router = APIRouter(route_class=ServiceRoute)
    stored = kind.type

    async def respond(service: Service, job: JobRecord) -> Response:
        found = await _stored_at(kind, job.id, service, WHOLE_FLEET)
        headers = {"Location": f"/v1/{stored.path}/{job.id}"}
        return Response(
            content=_record_text(kind, found), status_code=HTTPStatus.CREATED, headers=headers, media_type=JSON
        )

    async def create_raw(request: Request) -> Response:
        service: Service = request.app.state.service
        return await run_raw_job(request, service, kind=stored.name, respond=partial(respond, service))

    @router.post(
        f"/v1/{stored.path}",
        name=f"Create a {stored.name}",
        description=kind.creates,
        operation_id=f"create_{kind.operation}",
        status_code=HTTPStatus.CREATED,
        response_model=stored.record,
        responses=ACCEPTED | problems(409, *WITH_BODY),
        dependencies=[PREFER, PROJECT, NAMING],
    )
    @reads_raw(create_raw)
    async def create(
        *,
        body: stored.request,  # type: ignore[name-defined]  # noqa: ARG001 - checked here; the job reads the text
        request: Request,
        service: ServiceOf,
        principal: Planner,
        idempotency_key: IdempotencyKey = None,
    ) -> Response:
        return await run_job(
            request,
            service,
            principal,
            kind=stored.name,
            text=text_of(await request.body()),
            respond=partial(respond, service),
            naming=naming_of(request),
            key=idempotency_key,
        )

    return router


def _read_routes(kind: ResultKind[Any, Any]) -> APIRouter:
    router = APIRouter(route_class=ServiceRoute)
    stored = kind.type
    summary = stored.summary

    @router.get(
        f"/v1/{stored.path}",
        name=f"List {stored.name}s",
        description=f"{stored.name.capitalize()}s, newest first.",
        operation_id=f"list_{kind.operation}s",
        response_model=Page[summary],  # type: ignore[valid-type]  # FastAPI reads it when the route is made
        responses=problems(),
    )
    async def list_(
        service: ServiceOf,
        _principal: Reader,
        project: ProjectOf,
        paging: Paging,
        query: Annotated[ResultQuery, parameters_of(SolvedQuery if stored.has_status else ResultQuery)],
    ) -> Page[Any]:
        before, chosen = paging.start(str), query.chosen()
        async with service.store.reading(single=True) as tx:  # and one for the labels, which never change
            found = await tx.results.page(
                kind=stored.name, before_id=before, limit=paging.limit + 1, project=project.visible, chosen=chosen
            )
        summaries = [summary.model_validate(_head(head) | json.loads(head.summary), extra="ignore") for head in found]
        return paging.page(summaries, position=lambda last: last.id)

    @router.get(
        f"/v1/{stored.path}/{{id}}",
        name=f"Read a {stored.name}",
        description=f"One {stored.name}, with its request.",
        operation_id=f"get_{kind.operation}",
        response_model=stored.record,
        responses=problems(404),
    )
    async def get(
        result_id: Annotated[str, Path(alias="id", pattern=ID_PATTERN)],
        service: ServiceOf,
        _principal: Reader,
        project: ProjectOf,
    ) -> Response:
        found = await _stored_at(kind, result_id, service, project)
        return Response(content=_record_text(kind, found), media_type=JSON)

    return router


def _record_text(kind: ResultKind[Any, Any], found: StoredResult) -> str:
    """Write a record as text: the stored JSON was validated when it was written, and large results parse slowly."""
    head = to_jsonable_python(_head(found.head))
    return f'{canonical_json(head)[:-1]},"{kind.type.field}":{found.result},"request":{found.request}}}'


def _head(found: ResultSummary) -> dict[str, Any]:
    return {name: getattr(found, name) for name in ResultHead.model_fields}


def _export_route() -> APIRouter:
    router = APIRouter(route_class=ServiceRoute)

    @router.get(
        f"/v1/{PLACEMENT_KIND.type.path}/{{id}}/export",
        name="Export a placement for an engine",
        operation_id="export_placement",
        response_class=Response,
        responses=EXPORTED | ACCEPTED | problems(404),
        dependencies=[PREFER],
    )
    async def export(
        *,
        placement_id: Annotated[str, Path(alias="id", pattern=ID_PATTERN)],
        engine: Annotated[Engine, Query()],
        request: Request,
        service: ServiceOf,
        principal: Reader,
        project: ProjectOf,
    ) -> Response:
        """The file that the engine loads."""
        await _stored_at(PLACEMENT_KIND, placement_id, service, project)

        async def respond(job: JobRecord) -> Response:
            media_type = YAML if engine is Engine.TRTLLM else JSON
            return await output_response(service, job, media_type=media_type)

        return await run_job(
            request,
            service,
            principal,
            kind=PLACEMENT_EXPORT,
            text=json.dumps(engine.value),
            subject=f"{PLACEMENT_KIND.type.path}/{placement_id}",
            respond=respond,
        )

    return router


async def _stored_at(
    kind: ResultKind[Any, Any], result_id: str, service: Service, project: ProjectAccess
) -> StoredResult:
    async with service.store.reading() as tx:
        found = await tx.results.get(kind=kind.type.name, result_id=result_id, project=project.visible)
    if found is None:
        raise not_found(f"{kind.type.name} {result_id}")
    return found
