"""Builds the routes of every kind of stored result: create, list, read; and export, for placements."""

import json
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from pydantic_core import to_jsonable_python

from api.schemas.pages import Page
from api.schemas.results import RequestT
from api.server.auth import Planner, Reader
from api.server.cursors import Paging
from api.server.idempotency import IdempotencyKey, IdempotentRequest, Reply
from api.server.openapi import WITH_BODY, Responses, problems
from api.server.problems import not_found
from api.server.route import ServiceRoute
from api.server.service import Service, ServiceOf
from api.server.stored_results import KINDS, PLACEMENT_KIND, ResultKind, ResultT
from api.server.uuid7 import ID_PATTERN, new_id
from api.store import ResultSummary, StoredResult, Transaction, canonical_json
from fleet.documents import read_stored
from placement.document import Placement
from placement.formats.engine_writers import Engine, export_placement

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
            router.include_router(routes, tags=[kind.tag])
    router.include_router(_export_route(), tags=[PLACEMENT_KIND.tag])
    return router


def _create_route(kind: ResultKind[RequestT, ResultT]) -> APIRouter:
    router = APIRouter(route_class=ServiceRoute)
    stored = kind.type

    @router.post(
        f"/v1/{stored.path}",
        name=f"Create a {stored.name}",
        description=kind.creates,
        operation_id=f"create_{kind.operation}",
        status_code=HTTPStatus.CREATED,
        response_model=stored.record,
        responses=problems(409, *WITH_BODY),
    )
    async def create(
        body: stored.request,  # type: ignore[name-defined]  # FastAPI reads the annotation when the route is made
        request: Request,
        service: ServiceOf,
        principal: Planner,
        idempotency_key: IdempotencyKey = None,
    ) -> Response:
        idempotent = await IdempotentRequest.of(request, service=service, principal=principal, key=idempotency_key)
        if (saved := await idempotent.saved()) is not None:
            return saved
        solved = await kind.solve(service, body)
        now = service.now()
        record = stored.record(
            id=new_id(now),
            created_at=now,
            created_by=principal.actor,
            request=body,
            **{stored.field: solved.result},
        )
        columns = stored.columns(solved.result, solved.also)

        async def work(tx: Transaction) -> Reply:
            path = f"{stored.path}/{record.id}"
            await tx.results.add(
                StoredResult(
                    head=ResultSummary(
                        id=record.id,
                        kind=stored.name,
                        created_at=now,
                        created_by=principal.actor,
                        summary=canonical_json(columns),
                    ),
                    request=canonical_json(body.model_dump(mode="json")),
                    result=canonical_json(solved.result.model_dump(mode="json")),
                )
            )
            await service.audit(
                tx,
                actor=principal.actor,
                action=f"{kind.operation.replace('_', '-')}.created",
                subject=path,
                detail=columns if kind.audited is None else {name: columns[name] for name in kind.audited},
            )
            return Reply(body=record.model_dump_json(), headers={"Location": f"/v1/{path}"})

        response = await idempotent.write(work)
        kind.observe(service.metrics, solved.result)
        return response

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
        paging: Paging,
    ) -> Page[Any]:
        before = paging.start(str)
        async with service.store.reading() as tx:
            found = await tx.results.page(kind=stored.name, before_id=before, limit=paging.limit + 1)
        summaries = [
            summary.model_validate(
                {"id": head.id, "created_at": head.created_at, "created_by": head.created_by}
                | json.loads(head.summary),
                extra="ignore",
            )
            for head in found
        ]
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
        result_id: Annotated[str, Path(alias="id", pattern=ID_PATTERN)], service: ServiceOf, _principal: Reader
    ) -> Response:
        found = await _stored_at(kind, result_id, service)
        head = {
            "id": found.head.id,
            "created_at": to_jsonable_python(found.head.created_at),
            "created_by": found.head.created_by,
        }
        # As text: the stored JSON was validated when it was written, and large results take long to parse.
        body = f'{canonical_json(head)[:-1]},"{stored.field}":{found.result},"request":{found.request}}}'
        return Response(content=body, media_type=JSON)

    return router


def _export_route() -> APIRouter:
    router = APIRouter(route_class=ServiceRoute)

    @router.get(
        f"/v1/{PLACEMENT_KIND.type.path}/{{id}}/export",
        name="Export a placement for an engine",
        operation_id="export_placement",
        response_class=Response,
        responses=EXPORTED | problems(404),
    )
    async def export(
        placement_id: Annotated[str, Path(alias="id", pattern=ID_PATTERN)],
        engine: Annotated[Engine, Query()],
        service: ServiceOf,
        _principal: Reader,
    ) -> Response:
        """The file that the engine loads."""
        found = await _stored_at(PLACEMENT_KIND, placement_id, service)
        text = await service.solver_pool.wait_for(
            lambda: export_placement(read_stored(Placement, found.result), engine)
        )
        return Response(content=text, media_type=YAML if engine is Engine.TRTLLM else JSON)

    return router


async def _stored_at(kind: ResultKind[Any, Any], result_id: str, service: Service) -> StoredResult:
    async with service.store.reading() as tx:
        found = await tx.results.get(kind=kind.type.name, result_id=result_id)
    if found is None:
        raise not_found(f"{kind.type.name} {result_id}")
    return found
