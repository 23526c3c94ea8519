"""`/v1/audit`: read, export and verify the audit."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse

from api.jobs.audit_check import AUDIT_CHECK, AuditCheckRequest, anchor_of, place_of
from api.schemas.audit import NDJSON, Anchor, AuditCheck, AuditCheckpoint, AuditEntry
from api.schemas.pages import Page
from api.server.audit_query import AuditQuery, shown_action, shown_subject
from api.server.auth import Auditor, Principal
from api.server.cursors import Paging
from api.server.dependencies import parameters_of
from api.server.job_requests import ACCEPTED, PREFER, run_job
from api.server.jobs import NewJob, raise_failure
from api.server.openapi import Responses, problems
from api.server.problems import conflict
from api.server.route import ServiceRoute
from api.server.routes.jobs import output_response
from api.server.service import Service, ServiceOf
from api.store import AuditFilter, AuditRecord, ChainPlace, CheckpointRecord

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
    query: Annotated[AuditQuery, parameters_of(AuditQuery)],
) -> Page[AuditEntry] | Response:
    """Entries, newest first.  With `Accept: application/x-ndjson` all chosen entries as they were written, oldest
    first, one JSON object a line, whatever the limit.
    """
    chosen = query.chosen()
    if NDJSON in request.headers.get("accept", ""):
        return await _export(service, chosen)
    before = paging.start(int)
    async with service.store.reading(single=True) as tx:
        found = await tx.audit.page(before_seq=before, limit=paging.limit + 1, chosen=chosen)
    return paging.page([_entry(record) for record in found], position=lambda last: last.seq)


@router.get(
    "/v1/audit/check",
    name="Check the audit chain",
    operation_id="check_audit",
    response_model=AuditCheck,
    responses=ACCEPTED | problems(),
    dependencies=[PREFER],
)
async def check_audit(
    request: Request,
    service: ServiceOf,
    principal: Auditor,
    full: Annotated[bool, Query(description="Begin at the first entry, not at the newest checkpoint.")] = False,  # noqa: FBT002 - a query parameter
    anchor: Annotated[
        Anchor | None, Query(description="`SEQ:HASH` of an entry that was kept elsewhere: the check begins there.")
    ] = None,
) -> Response:
    """Compute the hashes of the chain again: after the newest checkpoint, or of all entries."""
    text = AuditCheckRequest(full=full, anchor=anchor).model_dump_json()
    respond = partial(output_response, service)
    return await run_job(request, service, principal, kind=AUDIT_CHECK, text=text, respond=respond)


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
    found = await _checked(service, principal)
    last = place_of(found.anchor or "0:")
    if not found.intact:
        raise conflict(f"the audit is broken at entry {found.first_broken_seq}")
    if last.seq == 0:
        raise conflict("the audit has no entry yet")
    made = CheckpointRecord(seq=last.seq, hash=last.hash, at=service.now(), made_by=principal.actor)
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


async def _checked(service: Service, principal: Principal) -> AuditCheck:
    """Let a worker check what no checkpoint covers."""
    text = AuditCheckRequest().model_dump_json()
    job, _replayed = await service.jobs.accept(NewJob(kind=AUDIT_CHECK, request=text, actor=principal.actor))
    job = await service.jobs.wait(job)
    raise_failure(job)
    async with service.store.reading() as tx:
        return AuditCheck.model_validate_json(await tx.jobs.output_of(job.id) or "")


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
    anchor = anchor_of(ChainPlace(record.seq, record.hash))
    return AuditCheckpoint(seq=record.seq, at=record.at, made_by=record.made_by, anchor=anchor)


def _entry(record: AuditRecord) -> AuditEntry:
    entry = AuditEntry.model_validate(record, from_attributes=True)
    return entry.model_copy(update={"action": shown_action(entry.action), "subject": shown_subject(entry.subject)})
