"""`/v1/audit`: read, export and verify the audit."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

import anyio
from anyio import to_thread
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response, StreamingResponse

from api.schemas.audit import NDJSON, Anchor, AuditCheck, AuditCheckpoint, AuditEntry
from api.schemas.pages import Page
from api.server.audit_query import AuditQuery, shown_action, shown_subject
from api.server.auth import Auditor
from api.server.cursors import Paging
from api.server.openapi import Responses, problems
from api.server.problems import conflict
from api.server.route import ServiceRoute
from api.server.service import Service, ServiceOf
from api.store import AuditFilter, AuditRecord, ChainCheck, ChainPlace, CheckpointRecord, check_chain

EXPORTED_AT_ONCE = 200  # the event loop writes them without a pause
EXPORTED: Responses = {200: {"content": {NDJSON: {"schema": {"type": "string"}}}}}

router = APIRouter(tags=["audit"], route_class=ServiceRoute)


@router.get(
    "/v1/audit",
    name="Read the audit",
    operation_id="list_audit",
    response_model=Page[AuditEntry],
    responses=EXPORTED | problems(),
)
async def list_audit(
    request: Request,
    service: ServiceOf,
    _principal: Auditor,
    paging: Paging,
    query: Annotated[AuditQuery, Depends()],
) -> Page[AuditEntry] | Response:
    """Entries, newest first.  With `Accept: application/x-ndjson` all chosen entries as they were written, oldest
    first, one JSON object a line, whatever the limit.
    """
    chosen = query.chosen()
    if NDJSON in request.headers.get("accept", ""):
        return await _export(service, chosen)
    before = paging.start(int)
    async with service.store.reading() as tx:
        found = await tx.audit.page(before_seq=before, limit=paging.limit + 1, chosen=chosen)
    return paging.page([_entry(record) for record in found], position=lambda last: last.seq)


@router.get("/v1/audit/check", name="Check the audit chain", operation_id="check_audit", responses=problems())
async def check_audit(
    service: ServiceOf,
    _principal: Auditor,
    full: Annotated[bool, Query(description="Begin at the first entry, not at the newest checkpoint.")] = False,  # noqa: FBT002 - a query parameter
    anchor: Annotated[
        Anchor | None, Query(description="`SEQ:HASH` of an entry that was kept elsewhere: the check begins there.")
    ] = None,
) -> AuditCheck:
    """Compute the hashes of the chain again: after the newest checkpoint, or of all entries."""
    found = await _checked(service, full=full, anchor=_place(anchor) if anchor is not None else None)
    return AuditCheck(
        entries=found.head.seq,
        intact=found.intact,
        first_broken_seq=found.first_broken_seq,
        checked_from_seq=found.checked_from_seq,
        anchor=_anchor(found.head),
    )


@router.get(
    "/v1/audit/checkpoints",
    name="List checkpoints of the audit",
    operation_id="list_audit_checkpoints",
    responses=problems(),
)
async def list_checkpoints(service: ServiceOf, _principal: Auditor, paging: Paging) -> Page[AuditCheckpoint]:
    """Checkpoints, newest first."""
    before = paging.start(int)
    async with service.store.reading() as tx:
        found = await tx.audit.checkpoints(before_seq=before, limit=paging.limit + 1)
    return paging.page([_checkpoint(record) for record in found], position=lambda last: last.seq)


@router.post(
    "/v1/audit/checkpoints",
    name="Make a checkpoint of the audit",
    operation_id="create_audit_checkpoint",
    status_code=HTTPStatus.CREATED,
    responses=problems(409),
)
async def create_checkpoint(service: ServiceOf, principal: Auditor) -> AuditCheckpoint:
    """Check the entries after the newest checkpoint, and keep the last entry as the next one."""
    found = await _checked(service)
    if not found.intact:
        raise conflict(f"the audit is broken at entry {found.first_broken_seq}")
    made = CheckpointRecord(seq=found.head.seq, hash=found.head.hash, at=service.now(), made_by=principal.actor)
    if made.seq == 0:
        raise conflict("the audit has no entry yet")
    async with service.store.transaction() as tx:
        await tx.audit.lock()
        await tx.audit.add_checkpoint(made)
        await service.audit(
            tx,
            actor=principal.actor,
            action="audit.checkpointed",
            subject=f"audit/{made.seq}",
            detail={"hash": made.hash, "checked_from_seq": found.checked_from_seq},
        )
    return _checkpoint(made)


_one_check = anyio.CapacityLimiter(1)  # a check occupies a core


async def _checked(service: Service, *, full: bool = False, anchor: ChainPlace | None = None) -> ChainCheck:
    url = service.settings.database_url.get_secret_value()
    return await to_thread.run_sync(partial(check_chain, url, full=full, anchor=anchor), limiter=_one_check)


async def _export(service: Service, chosen: AuditFilter) -> Response:
    async with service.store.reading() as tx:
        last = await tx.audit.length()  # later entries would be a moving end
    chosen = replace(chosen, to_seq=min(chosen.to_seq or last, last))
    return StreamingResponse(_lines(service, chosen), media_type=NDJSON)


async def _lines(service: Service, chosen: AuditFilter) -> AsyncIterator[bytes]:
    """Read a few entries at a time, so that a slow client occupies no connection."""
    after = 0
    while True:
        async with service.store.reading() as tx:
            found = await tx.audit.as_written(after_seq=after, limit=EXPORTED_AT_ONCE, chosen=chosen)
        if not found:
            return
        yield "".join(_line(row) for row in found).encode()
        after = found[-1]["seq"]


def _line(row: dict[str, Any]) -> str:
    """Write the canonical JSON that the hash covers, and the hash."""
    fields = row | {"at": row["at"].isoformat(timespec="microseconds"), "detail": None}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return text.replace('"detail":null', f'"detail":{row["detail"]}', 1) + "\n"


def _checkpoint(record: CheckpointRecord) -> AuditCheckpoint:
    anchor = _anchor(ChainPlace(record.seq, record.hash))
    return AuditCheckpoint(seq=record.seq, at=record.at, made_by=record.made_by, anchor=anchor)


def _anchor(place: ChainPlace) -> str:
    return f"{place.seq}:{place.hash}"


def _place(anchor: str) -> ChainPlace:
    seq, _colon, stored_hash = anchor.partition(":")
    return ChainPlace(int(seq), stored_hash)


def _entry(record: AuditRecord) -> AuditEntry:
    entry = AuditEntry.model_validate(record, from_attributes=True)
    return entry.model_copy(update={"action": shown_action(entry.action), "subject": shown_subject(entry.subject)})
