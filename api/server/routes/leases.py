"""`/v1/leases`: elect the leader of controllers, power guards and fault monitors.

The audit records a change of holder, not a renewal.
"""

from dataclasses import replace
from http import HTTPStatus

from fastapi import APIRouter
from fastapi.responses import Response

from api.schemas.leases import Lease, LeaseClaim
from api.schemas.names import Name
from api.schemas.pages import Page
from api.server.auth import FleetReporter, Reader
from api.server.cursors import Paging
from api.server.etags import IfMatch, IfNoneMatch, Precondition, etag_of, write_precondition
from api.server.openapi import CACHED, TAGGED, WITH_BODY, problems
from api.server.problems import not_found
from api.server.route import ServiceRoute
from api.server.service import Service, ServiceOf
from api.server.versioned import send_body
from api.store import ConflictError, LeaseRecord

router = APIRouter(tags=["leases"], route_class=ServiceRoute)


@router.get("/v1/leases", name="List leases", operation_id="list_leases", responses=problems())
async def list_leases(
    service: ServiceOf,
    _principal: Reader,
    paging: Paging,
) -> Page[Lease]:
    """Leases by name."""
    after = paging.start(str)
    async with service.store.reading() as tx:
        found = await tx.leases.page(after=after, limit=paging.limit + 1)
    return paging.page([_read(lease) for lease in found], position=lambda last: last.name)


@router.get(
    "/v1/leases/{name}",
    name="Read a lease",
    operation_id="get_lease",
    response_model=Lease,
    responses=CACHED | problems(404),
)
async def get_lease(name: Name, service: ServiceOf, _principal: Reader, if_none_match: IfNoneMatch = None) -> Response:
    """The lease.  The server does not know whether the holder lives: observe the renewals."""
    async with service.store.reading() as tx:
        found = await tx.leases.get(name)
    if found is None:
        raise not_found(f"lease {name!r}")
    return _send(found, if_none_match=if_none_match)


@router.put(
    "/v1/leases/{name}",
    name="Take, renew or give back a lease",
    operation_id="put_lease",
    response_model=Lease,
    responses=TAGGED | {201: TAGGED[200] | {"model": Lease}} | problems(409, 412, 428, *WITH_BODY),
)
async def put_lease(
    *,
    name: Name,
    body: LeaseClaim,
    service: ServiceOf,
    principal: FleetReporter,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """`If-None-Match: *` for a lease without a previous holder, else `If-Match` with the observed ETag."""
    precondition = write_precondition(if_match=if_match, if_none_match=if_none_match)
    try:
        before, after = await _replace(service, name, body, precondition=precondition, actor=principal.actor)
    except ConflictError:  # another claim was stored between the read and the write
        async with service.store.reading() as tx:
            found = await tx.leases.get(name)
        precondition.check(current=_tag(found) if found is not None else None)
        raise
    return _send(after, status=HTTPStatus.OK if before is not None else HTTPStatus.CREATED)


async def _replace(
    service: Service, name: str, claim: LeaseClaim, *, precondition: Precondition, actor: str
) -> tuple[LeaseRecord | None, LeaseRecord]:
    async with service.store.transaction() as tx:
        before = await tx.leases.get(name)
        precondition.check(current=_tag(before) if before is not None else None)
        after = replace(_next(before, name, claim, actor=actor), renewed_at=service.now())
        await tx.leases.put(after, after=before)
        held_before = before.holder if before is not None else None
        if after.holder != held_before:
            detail = {"holder": after.holder, "before": held_before, "term": after.term}
            action = "lease.taken" if after.holder is not None else "lease.given_back"
            await service.audit(tx, actor=actor, action=action, subject=f"leases/{name}", detail=detail)
        return before, after


def _next(before: LeaseRecord | None, name: str, claim: LeaseClaim, *, actor: str) -> LeaseRecord:
    renewed = before is not None and before.holder == claim.holder
    term, beats = (before.term, before.beats) if before is not None else (0, 0)
    term = term if renewed else term + 1
    return LeaseRecord(
        name=name,
        holder=claim.holder,
        term=term,
        beats=beats + 1 if renewed else 0,
        lease_s=claim.lease_s,
        held_by=actor if claim.holder is not None else None,
        held_term=term,
    )


def _read(found: LeaseRecord) -> Lease:
    return Lease(name=found.name, holder=found.holder, lease_s=found.lease_s, term=found.term, beats=found.beats)


def _tag(found: LeaseRecord) -> str:
    return etag_of(version=found.term, body=_read(found).model_dump_json())


def _send(found: LeaseRecord, *, if_none_match: str | None = None, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return send_body(_read(found).model_dump_json(), etag=_tag(found), if_none_match=if_none_match, status=status)
