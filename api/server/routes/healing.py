"""`/v1/faults/cases`: what is done about nodes that were isolated, one case each."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.schemas.healing import CaseSpec, HealingCase
from api.schemas.names import Name
from api.schemas.pages import Cursor, Page, PageLimit
from api.server.auth import Operator, Reader, TokenFirst
from api.server.cursors import page_of, read_cursor
from api.server.etags import IfMatch, IfNoneMatch, write_precondition
from api.server.healing import CASE_KIND, case_slot, read_case, write_case
from api.server.openapi import CACHED, TAGGED, WITH_BODY, problems
from api.server.problems import not_found
from api.server.service import ServiceOf
from api.server.versioned import Edition, current, edition, send_body

router = APIRouter(tags=["faults"], route_class=TokenFirst)


@router.get("/v1/faults/cases", name="List healing cases", operation_id="list_healing_cases", responses=problems())
async def list_cases(
    service: ServiceOf,
    _principal: Reader,
    limit: Annotated[PageLimit, Query()] = 50,
    cursor: Annotated[Cursor | None, Query()] = None,
) -> Page[HealingCase]:
    """Cases by id.  The id of a verdict sorts by time."""
    (after,) = read_cursor(cursor, str)
    async with service.store.reading() as tx:
        found = await tx.documents.heads(kind=CASE_KIND, after=after, limit=limit + 1)
    cases = [read_case(stored.name, edition(stored)) for stored in found]
    return page_of(cases, limit=limit, position=lambda last: (last.id,))


@router.get(
    "/v1/faults/cases/{case_id}",
    name="Read a healing case",
    operation_id="get_healing_case",
    response_model=HealingCase,
    responses=CACHED | problems(404),
)
async def get_case(
    case_id: Name, service: ServiceOf, _principal: Reader, if_none_match: IfNoneMatch = None
) -> Response:
    """One case with everything that was done."""
    async with service.store.reading() as tx:
        found = await current(tx, case_slot(case_id))
    return _send(case_id, found, if_none_match=if_none_match)


@router.put(
    "/v1/faults/cases/{case_id}",
    name="Open a healing case or carry it on",
    operation_id="put_healing_case",
    response_model=HealingCase,
    responses=TAGGED | {201: TAGGED[200] | {"model": HealingCase}} | problems(409, 412, 428, *WITH_BODY),
)
async def put_case(
    *,
    case_id: Name,
    body: CaseSpec,
    service: ServiceOf,
    principal: Operator,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """For the healer.  Open with `If-None-Match: *`, carry on with `If-Match`."""
    precondition = write_precondition(if_match=if_match, if_none_match=if_none_match)
    stored, opened = await write_case(service, case_id, body, precondition=precondition, actor=principal.actor)
    return _send(case_id, stored, status=HTTPStatus.CREATED if opened else HTTPStatus.OK)


def _send(
    case_id: str, found: Edition, *, if_none_match: str | None = None, status: HTTPStatus = HTTPStatus.OK
) -> Response:
    if found.body is None:
        raise not_found(f"healing case {case_id!r}")
    body = read_case(case_id, found).model_dump_json()
    return send_body(body, etag=found.etag or "", if_none_match=if_none_match, status=status)
