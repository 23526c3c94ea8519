"""Builds the routes of every collection: list, read, put and, where allowed, delete."""

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import Response

from api.schemas.leases import LeaseTerm
from api.schemas.pages import Page
from api.server.auth import Principal, Reader, RequireScope
from api.server.collections import Collection, Entry, ShownT, SpecT
from api.server.cursors import Paging
from api.server.etags import IfMatch, IfNoneMatch, write_precondition
from api.server.fencing import lease_term
from api.server.newest_version_cache import NewestVersionCache
from api.server.openapi import CACHED, TAGGED, WITH_BODY, problems
from api.server.projects import WHOLE_FLEET, ProjectAccess, project_access
from api.server.route import ServiceRoute
from api.server.service import ServiceOf
from api.server.versioned import send_body
from api.store import DocumentRecord

RENDERED_DOCUMENTS: Final = 1_000  # of one collection
RENDERED_CHARACTERS: Final = 8_192  # of one document: some kinds have large ones


@dataclass(frozen=True, slots=True)
class _Rendered:
    text: str
    etag: str


@dataclass(frozen=True, slots=True)
class OperationText:
    name: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionText:
    """Holds the OpenAPI text of a collection's operations: `list_SINGULARs`, `get_SINGULAR`, ..."""

    singular: str
    lists: OperationText
    gets: OperationText
    puts: OperationText
    deletes: OperationText | None = None  # not allowed


async def _whole_fleet() -> ProjectAccess:
    return WHOLE_FLEET


async def _no_lease() -> None:
    return None


async def _no_dry_run() -> bool:
    return False


async def _dry_run(
    dry_run: Annotated[  # noqa: FBT002 - a query parameter
        bool, Query(description="Check the write, and respond with what it would store; store nothing.")
    ] = False,
) -> bool:
    return dry_run


def collection_routes(
    collection: Collection[SpecT, ShownT], *, key: str, pattern: str, writer: RequireScope, text: CollectionText
) -> APIRouter:
    """Build the routes of a collection; `key` is the path parameter with the name, which matches the pattern."""
    router = APIRouter(route_class=ServiceRoute)
    path, shown, singular = f"/v1/{collection.path}", collection.shown, text.singular
    in_path, may_write = Path(alias=key, pattern=pattern), Depends(writer)
    access = Depends(project_access if collection.owned else _whole_fleet)
    lease = Depends(lease_term if collection.lease is not None else _no_lease)
    preview = collection.preview
    may_be_dry = Depends(_dry_run if preview is not None else _no_dry_run)
    put_model = shown if preview is None else shown | preview.type

    def render(found: Entry[SpecT]) -> _Rendered:
        return _Rendered(text=collection.show(found).model_dump_json(), etag=found.etag)

    rendered = NewestVersionCache(lambda stored: render(collection.entry(stored)), max_documents=RENDERED_DOCUMENTS)

    def render_stored(stored: DocumentRecord) -> _Rendered:
        """Render a document, which many callers read again and again."""
        is_small = stored.body is not None and len(stored.body) <= RENDERED_CHARACTERS
        return rendered.get(stored) if is_small else render(collection.entry(stored))

    @router.get(
        path,
        name=text.lists.name,
        description=text.lists.description,
        operation_id=f"list_{singular}s",
        response_model=Page[shown],  # type: ignore[valid-type]  # FastAPI reads it when the route is made
        responses=problems(),
    )
    async def list_(
        service: ServiceOf,
        _principal: Reader,
        project: Annotated[ProjectAccess, access],
        paging: Paging,
    ) -> Response:
        after = paging.start(str)
        async with service.store.reading(single=True) as tx:
            found = await collection.page(tx, after=after, limit=paging.limit + 1, project=project)
        kept = paging.page(found, position=lambda last: last.name)
        items = ",".join(render_stored(each).text for each in kept.items)
        return Response(
            content=f'{{"items":[{items}],"next_cursor":{json.dumps(kept.next_cursor)}}}', media_type="application/json"
        )

    @router.get(
        f"{path}/{{{key}}}",
        name=text.gets.name,
        description=text.gets.description,
        operation_id=f"get_{singular}",
        response_model=shown,
        responses=CACHED | problems(404),
    )
    async def get(
        name: Annotated[str, in_path],
        service: ServiceOf,
        _principal: Reader,
        project: Annotated[ProjectAccess, access],
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        async with service.store.reading(single=True) as tx:
            found = render_stored(await collection.stored(tx, name, project=project))
        return send_body(found.text, etag=found.etag, if_none_match=if_none_match)

    @router.put(
        f"{path}/{{{key}}}",
        name=text.puts.name,
        description=text.puts.description,
        operation_id=f"put_{singular}",
        response_model=put_model,
        responses=TAGGED | {201: TAGGED[200] | {"model": shown}} | problems(409, 412, 428, *WITH_BODY),
    )
    async def put(
        *,
        name: Annotated[str, in_path],
        body: collection.spec,  # type: ignore[name-defined]  # FastAPI reads the annotation when the route is made
        service: ServiceOf,
        principal: Annotated[Principal, may_write],
        project: Annotated[ProjectAccess, access],
        held: Annotated[LeaseTerm | None, lease],
        dry_run: Annotated[bool, may_be_dry],
        if_match: IfMatch = None,
        if_none_match: IfNoneMatch = None,
    ) -> Response:
        precondition = write_precondition(if_match=if_match, if_none_match=if_none_match)
        before, after = await collection.put(
            service,
            name,
            body,
            precondition=precondition,
            actor=principal.actor,
            project=project,
            held=held,
            dry_run=dry_run,
        )
        if dry_run and preview is not None:
            return send_body(preview.show(before, after).model_dump_json(), etag=after.etag)
        status = HTTPStatus.CREATED if before is None else HTTPStatus.OK
        return send_body(render(after).text, etag=after.etag, status=status)

    if text.deletes is not None:

        @router.delete(
            f"{path}/{{{key}}}",
            name=text.deletes.name,
            description=text.deletes.description,
            operation_id=f"delete_{singular}",
            status_code=HTTPStatus.NO_CONTENT,
            responses=problems(409, 412, 428),
        )
        async def delete(
            name: Annotated[str, in_path],
            service: ServiceOf,
            principal: Annotated[Principal, may_write],
            project: Annotated[ProjectAccess, access],
            if_match: IfMatch = None,
        ) -> None:
            precondition = write_precondition(if_match=if_match)
            await collection.delete(service, name, precondition=precondition, actor=principal.actor, project=project)

    return router
