"""`/v1/targets`: the running applications that plans are carried out on, and what the controller reports of them."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.schemas.names import Name
from api.schemas.pages import Cursor, Page, PageLimit
from api.schemas.target_memory import Approval, ApprovalRequest
from api.schemas.targets import Target, TargetSpec, TargetStatus
from api.server.auth import Operator, Reader, TokenFirst
from api.server.cursors import page_of, read_cursor
from api.server.etags import IfMatch, IfNoneMatch, write_precondition
from api.server.openapi import CACHED, TAGGED, WITH_BODY, problems
from api.server.problems import invalid, not_found
from api.server.service import Service, ServiceOf
from api.server.target_reports import approve, keep_report
from api.server.targets import TARGET_KIND, delete_target, read_target, target_slot, write_target
from api.server.versioned import Edition, current, edition, send_body

router = APIRouter(tags=["targets"], route_class=TokenFirst)


@router.get("/v1/targets", name="List targets", operation_id="list_targets", responses=problems())
async def list_targets(
    service: ServiceOf,
    _principal: Reader,
    limit: Annotated[PageLimit, Query()] = 50,
    cursor: Annotated[Cursor | None, Query()] = None,
) -> Page[Target]:
    """Targets by name."""
    (after,) = read_cursor(cursor, str)
    async with service.store.reading() as tx:
        found = await tx.documents.heads(kind=TARGET_KIND, after=after, limit=limit + 1)
    targets = [read_target(stored.name, edition(stored)) for stored in found]
    return page_of(targets, limit=limit, position=lambda last: (last.name,))


@router.get(
    "/v1/targets/{name}",
    name="Read a target",
    operation_id="get_target",
    response_model=Target,
    responses=CACHED | problems(404),
)
async def get_target(name: Name, service: ServiceOf, _principal: Reader, if_none_match: IfNoneMatch = None) -> Response:
    """One target."""
    async with service.store.reading() as tx:
        found = await current(tx, target_slot(name))
    return _send(name, found, if_none_match=if_none_match)


@router.put(
    "/v1/targets/{name}",
    name="Create or replace a target",
    operation_id="put_target",
    response_model=Target,
    responses=TAGGED | {201: TAGGED[200] | {"model": Target}} | problems(409, 412, 428, *WITH_BODY),
)
async def put_target(
    *,
    name: Name,
    body: TargetSpec,
    service: ServiceOf,
    principal: Operator,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Create with `If-None-Match: *`, replace with `If-Match`."""
    precondition = write_precondition(if_match=if_match, if_none_match=if_none_match)
    await _check_plan(service, body)
    stored, created = await write_target(service, name, body, precondition=precondition, actor=principal.actor)
    return _send(name, stored, status=HTTPStatus.CREATED if created else HTTPStatus.OK)


@router.delete(
    "/v1/targets/{name}",
    name="Delete a target",
    operation_id="delete_target",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(409, 412, 428),
)
async def remove_target(name: Name, service: ServiceOf, principal: Operator, if_match: IfMatch = None) -> None:
    """Forget a target; what runs there goes on running."""
    await delete_target(service, name, precondition=write_precondition(if_match=if_match), actor=principal.actor)


@router.get(
    "/v1/targets/{name}/status",
    name="Read a target's status",
    operation_id="get_target_status",
    responses=problems(404),
)
async def get_status(name: Name, service: ServiceOf, _principal: Reader) -> TargetStatus:
    """The last report on a target."""
    async with service.store.reading() as tx:
        exists = (await current(tx, target_slot(name))).body is not None
        found = await tx.statuses.get(name) if exists else None
    if found is None:
        raise not_found(f"report on target {name!r} yet" if exists else f"target {name!r}")
    return TargetStatus.model_validate_json(found.body)


@router.put(
    "/v1/targets/{name}/status",
    name="Report a target's status",
    operation_id="put_target_status",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(404, *WITH_BODY),
)
async def put_status(name: Name, body: TargetStatus, service: ServiceOf, principal: Operator) -> None:
    """What the controller saw and did.  Whatever differs from the last report but the counts that run is audited."""
    await keep_report(service, name, body, actor=principal.actor)


@router.post(
    "/v1/targets/{name}/approval",
    name="Approve a target's change set",
    operation_id="approve_target",
    responses=problems(404, 409, *WITH_BODY),
)
async def post_approval(name: Name, body: ApprovalRequest, service: ServiceOf, principal: Operator) -> Approval:
    """Approve exactly the change set of the last report.  Doing it twice is doing it once, until it is carried out."""
    return await approve(service, name, body, actor=principal.actor)


async def _check_plan(service: Service, spec: TargetSpec) -> None:
    if spec.plan_id is None:
        return
    async with service.store.reading() as tx:
        plan = await tx.plans.get(spec.plan_id)
    if plan is None:
        raise invalid("plan_id", f"there is no plan {spec.plan_id!r}; allowed: the id of a stored plan, or null")


def _send(
    name: str, found: Edition, *, if_none_match: str | None = None, status: HTTPStatus = HTTPStatus.OK
) -> Response:
    if found.body is None:
        raise not_found(f"target {name!r}")
    body = read_target(name, found).model_dump_json()
    return send_body(body, etag=found.etag or "", if_none_match=if_none_match, status=status)
