"""`/v1/gpus`, `/v1/models`, `/v1/offers`, `/v1/topology`: read, replace, list versions."""

from typing import Annotated, TypeVar

from fastapi import APIRouter, Path
from fastapi.responses import Response
from pydantic import BaseModel

from api.schemas.documents import VersionInfo
from api.schemas.pages import Page
from api.server.auth import FleetPlanner, Reader
from api.server.catalogues import ALL, SINGLE, Catalogue, replace_catalogue
from api.server.cursors import INT32_MAX, Paging
from api.server.etags import IfMatch, IfNoneMatch, write_precondition
from api.server.openapi import CACHED, TAGGED, WITH_BODY, problems
from api.server.problems import not_found
from api.server.route import ServiceRoute, add_routes
from api.server.service import ServiceOf
from api.server.versioned import DocumentVersion, current, document_version, send

ModelT = TypeVar("ModelT", bound=BaseModel)


def catalogue_routes() -> APIRouter:
    router = APIRouter(route_class=ServiceRoute)
    for catalogue in ALL:
        for routes in (_document_routes(catalogue), _version_routes(catalogue)):
            add_routes(router, routes, tags=[catalogue.kind.value])
    return router


def _document_routes(catalogue: Catalogue[ModelT]) -> APIRouter:
    router = APIRouter(route_class=ServiceRoute)
    kind = catalogue.kind
    model = catalogue.model

    @router.get(
        f"/v1/{kind}",
        name=f"Read the {kind} document",
        operation_id=f"get_{kind}",
        response_model=model,
        responses=CACHED | problems(),
    )
    async def read(service: ServiceOf, _principal: Reader, if_none_match: IfNoneMatch = None) -> Response:
        async with service.store.reading(single=True) as tx:
            return send(await current(tx, catalogue.key), if_none_match=if_none_match)

    @router.put(
        f"/v1/{kind}",
        name=f"Replace the {kind} document",
        operation_id=f"put_{kind}",
        response_model=model,
        responses=TAGGED | problems(409, 412, 428, *WITH_BODY),
    )
    async def write(
        body: model,  # type: ignore[valid-type]  # FastAPI reads the annotation when the route is made
        service: ServiceOf,
        principal: FleetPlanner,
        if_match: IfMatch = None,
    ) -> Response:
        precondition = write_precondition(if_match=if_match)
        stored = await replace_catalogue(service, catalogue, body, precondition=precondition, actor=principal.actor)
        return send(stored)

    return router


def _version_routes(catalogue: Catalogue[ModelT]) -> APIRouter:
    router = APIRouter(route_class=ServiceRoute)
    kind = catalogue.kind

    @router.get(
        f"/v1/{kind}/versions",
        name=f"List the versions of the {kind} document",
        operation_id=f"list_{kind}_versions",
        responses=problems(),
    )
    async def versions(
        service: ServiceOf,
        _principal: Reader,
        paging: Paging,
    ) -> Page[VersionInfo]:
        before = paging.start(int)
        async with service.store.reading() as tx:
            found = await tx.documents.versions(kind=kind, name=SINGLE, before=before, limit=paging.limit + 1)
        infos = [_info(document_version(stored)) for stored in found]
        return paging.page(infos, position=lambda last: last.version)

    @router.get(
        f"/v1/{kind}/versions/{{version}}",
        name=f"Read one version of the {kind} document",
        operation_id=f"get_{kind}_version",
        response_model=catalogue.model,
        responses=CACHED | problems(404),
    )
    async def one_version(
        service: ServiceOf,
        _principal: Reader,
        version: Annotated[int, Path(ge=0, le=INT32_MAX, description="0 ships with the product.")],
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        if version == 0:
            return send(DocumentVersion(version=0, body=catalogue.key.shipped), if_none_match=if_none_match)
        async with service.store.reading() as tx:
            found = await tx.documents.get(kind=kind, name=SINGLE, version=version)
        if found is None or found.body is None:
            raise not_found(f"version {version} of the {kind} document")
        return send(document_version(found), if_none_match=if_none_match)

    return router


def _info(found: DocumentVersion) -> VersionInfo:
    return VersionInfo(
        version=found.version, etag=found.etag or "", created_at=found.created_at, created_by=found.created_by
    )
