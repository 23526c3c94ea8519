"""`/v1/power/trees` and `/v1/power/budgets`: what hangs on what, and what each domain may draw for now."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.schemas.names import Name
from api.schemas.pages import Cursor, Page, PageLimit
from api.schemas.power import DomainName, PowerBudget, StoredBudget, StoredTree
from api.server.auth import Operator, Planner, Reader, TokenFirst
from api.server.cursors import page_of, read_cursor
from api.server.etags import IfMatch, IfNoneMatch, write_precondition
from api.server.openapi import CACHED, TAGGED, WITH_BODY, problems
from api.server.power_trees import (
    BUDGET_KIND,
    TREE_KIND,
    budget_slot,
    delete_budget,
    delete_tree,
    read_budget,
    read_tree,
    tree_slot,
    write_budget,
    write_tree,
)
from api.server.problems import not_found
from api.server.service import ServiceOf
from api.server.versioned import Edition, current, edition, send_body
from power.tree import PowerTree

router = APIRouter(tags=["power"], route_class=TokenFirst)


@router.get("/v1/power/trees", name="List power trees", operation_id="list_power_trees", responses=problems())
async def list_trees(
    service: ServiceOf,
    _principal: Reader,
    limit: Annotated[PageLimit, Query()] = 50,
    cursor: Annotated[Cursor | None, Query()] = None,
) -> Page[StoredTree]:
    """Power trees by name."""
    (after,) = read_cursor(cursor, str)
    async with service.store.reading() as tx:
        found = await tx.documents.heads(kind=TREE_KIND, after=after, limit=limit + 1)
    trees = [_tree(stored.name, edition(stored)) for stored in found]
    return page_of(trees, limit=limit, position=lambda last: (last.name,))


@router.get(
    "/v1/power/trees/{name}",
    name="Read a power tree",
    operation_id="get_power_tree",
    response_model=StoredTree,
    responses=CACHED | problems(404),
)
async def get_tree(name: Name, service: ServiceOf, _principal: Reader, if_none_match: IfNoneMatch = None) -> Response:
    """One power tree."""
    async with service.store.reading() as tx:
        found = await current(tx, tree_slot(name))
    return _send_tree(name, found, if_none_match=if_none_match)


@router.put(
    "/v1/power/trees/{name}",
    name="Create or replace a power tree",
    operation_id="put_power_tree",
    response_model=StoredTree,
    responses=TAGGED | {201: TAGGED[200] | {"model": StoredTree}} | problems(409, 412, 428, *WITH_BODY),
)
async def put_tree(
    *,
    name: Name,
    body: PowerTree,
    service: ServiceOf,
    principal: Planner,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Create with `If-None-Match: *`, replace with `If-Match`.  Budgets in force must still fit."""
    precondition = write_precondition(if_match=if_match, if_none_match=if_none_match)
    stored, created = await write_tree(service, name, body, precondition=precondition, actor=principal.actor)
    return _send_tree(name, stored, status=HTTPStatus.CREATED if created else HTTPStatus.OK)


@router.delete(
    "/v1/power/trees/{name}",
    name="Delete a power tree",
    operation_id="delete_power_tree",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(409, 412, 428),
)
async def remove_tree(name: Name, service: ServiceOf, principal: Planner, if_match: IfMatch = None) -> None:
    """Forget a tree on which no budget is in force."""
    await delete_tree(service, name, precondition=write_precondition(if_match=if_match), actor=principal.actor)


@router.get("/v1/power/budgets", name="List budgets", operation_id="list_power_budgets", responses=problems())
async def list_budgets(
    service: ServiceOf,
    _principal: Reader,
    limit: Annotated[PageLimit, Query()] = 50,
    cursor: Annotated[Cursor | None, Query()] = None,
) -> Page[StoredBudget]:
    """The budgets last set, by domain; expired ones too."""
    (after,) = read_cursor(cursor, str)
    async with service.store.reading() as tx:
        found = await tx.documents.heads(kind=BUDGET_KIND, after=after, limit=limit + 1)
    budgets = [_budget(stored.name, edition(stored)) for stored in found]
    return page_of(budgets, limit=limit, position=lambda last: (last.domain,))


@router.get(
    "/v1/power/budgets/{domain}",
    name="Read a domain's budget",
    operation_id="get_power_budget",
    response_model=StoredBudget,
    responses=CACHED | problems(404),
)
async def get_budget(
    domain: DomainName, service: ServiceOf, _principal: Reader, if_none_match: IfNoneMatch = None
) -> Response:
    """What a domain may draw, and until when."""
    async with service.store.reading() as tx:
        found = await current(tx, budget_slot(domain))
    return _send_budget(domain, found, if_none_match=if_none_match)


@router.put(
    "/v1/power/budgets/{domain}",
    name="Set a domain's budget",
    operation_id="put_power_budget",
    response_model=StoredBudget,
    responses=TAGGED | {201: TAGGED[200] | {"model": StoredBudget}} | problems(409, 412, 428, *WITH_BODY),
)
async def put_budget(
    *,
    domain: DomainName,
    body: PowerBudget,
    service: ServiceOf,
    principal: Operator,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Create with `If-None-Match: *`, replace with `If-Match`.  A refused budget leaves the old one in force."""
    precondition = write_precondition(if_match=if_match, if_none_match=if_none_match)
    stored, created = await write_budget(service, domain, body, precondition=precondition, actor=principal.actor)
    return _send_budget(domain, stored, status=HTTPStatus.CREATED if created else HTTPStatus.OK)


@router.delete(
    "/v1/power/budgets/{domain}",
    name="Withdraw a domain's budget",
    operation_id="delete_power_budget",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(409, 412, 428),
)
async def remove_budget(domain: DomainName, service: ServiceOf, principal: Operator, if_match: IfMatch = None) -> None:
    """Whoever guards the domain falls back to its standing budget."""
    await delete_budget(service, domain, precondition=write_precondition(if_match=if_match), actor=principal.actor)


def _tree(name: str, found: Edition) -> StoredTree:
    return StoredTree(name=name, version=found.version, tree=read_tree(found.body or ""))


def _budget(domain: str, found: Edition) -> StoredBudget:
    if found.created_at is None or found.created_by is None:
        raise not_found(f"budget of power domain {domain!r}")
    return StoredBudget(
        domain=domain,
        version=found.version,
        set_at=found.created_at,
        set_by=found.created_by,
        budget=read_budget(found),
    )


def _send_tree(
    name: str, found: Edition, *, if_none_match: str | None = None, status: HTTPStatus = HTTPStatus.OK
) -> Response:
    if found.body is None:
        raise not_found(f"power tree {name!r}")
    body = _tree(name, found).model_dump_json()
    return send_body(body, etag=found.etag or "", if_none_match=if_none_match, status=status)


def _send_budget(
    domain: str, found: Edition, *, if_none_match: str | None = None, status: HTTPStatus = HTTPStatus.OK
) -> Response:
    if found.body is None:
        raise not_found(f"budget of power domain {domain!r}")
    body = _budget(domain, found).model_dump_json()
    return send_body(body, etag=found.etag or "", if_none_match=if_none_match, status=status)
