"""`/v1/faults/diagnoses`: store and read diagnoses that fault monitors report, with their bundles."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from api.schemas.faults import BundleReplay, DiagnosisRecord, DiagnosisReport, DiagnosisSummary, ExpiryChange
from api.schemas.pages import Page
from api.server.auth import Operator, Planner, Reader
from api.server.bundles import checked, replayed, text_of
from api.server.cursors import Paging
from api.server.diagnoses import (
    audit_detail,
    head_of,
    read_report,
    record_of,
    refuse_invalid,
    stored_diagnosis,
    summary_of,
    with_expiry,
)
from api.server.idempotency import IdempotencyKey, IdempotentRequest, Reply
from api.server.openapi import WITH_BODY, Responses, problems
from api.server.problems import conflict
from api.server.route import ServiceRoute
from api.server.service import Service, ServiceOf
from api.server.uuid7 import ID_PATTERN, new_id
from api.store import Transaction

router = APIRouter(tags=["faults"], route_class=ServiceRoute)
DiagnosisId = Annotated[str, Path(pattern=ID_PATTERN)]

BUNDLE_MEDIA_TYPE = "application/x-ndjson"
AS_LINES: Responses = {
    200: {
        "description": "The bundle, one JSON value per line.",
        "content": {BUNDLE_MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}


@router.post(
    "/v1/faults/diagnoses",
    name="Report a diagnosis",
    operation_id="report_diagnosis",
    status_code=HTTPStatus.CREATED,
    response_model=DiagnosisRecord,
    responses=problems(409, *WITH_BODY),
)
async def report_diagnosis(
    body: DiagnosisReport,
    request: Request,
    service: ServiceOf,
    principal: Operator,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Store a diagnosis.  The quarantine policy uses it until it expires."""
    idempotent = await IdempotentRequest.of(request, service=service, principal=principal, key=idempotency_key)
    if (saved := await idempotent.saved()) is not None:
        return saved
    refuse_invalid(body)
    text = body.bundle
    bundle = await service.solver_pool.solve(lambda: checked(text)) if text is not None else None
    now = service.now()
    sha256 = bundle.sha256 if bundle is not None else None
    head = head_of(body, diagnosis_id=new_id(now), now=now, actor=principal.actor, bundle_sha256=sha256)

    async def work(tx: Transaction) -> Reply:
        await tx.diagnoses.add(head, bundle=bundle.packed if bundle is not None else None)
        await service.audit(
            tx,
            actor=principal.actor,
            action="diagnosis.reported",
            subject=f"faults/diagnoses/{head.id}",
            detail=audit_detail(head, body.diagnosis),
        )
        return Reply(body=record_of(head).model_dump_json(), headers={"Location": f"/v1/faults/diagnoses/{head.id}"})

    response = await idempotent.write(work)
    service.metrics.faults.observe_report(body.diagnosis)
    return response


@router.get("/v1/faults/diagnoses", name="List diagnoses", operation_id="list_diagnoses", responses=problems())
async def list_diagnoses(
    service: ServiceOf,
    _principal: Reader,
    paging: Paging,
) -> Page[DiagnosisSummary]:
    """Diagnoses, newest first."""
    before = paging.start(str)
    async with service.store.reading() as tx:
        found = await tx.diagnoses.page(before_id=before, limit=paging.limit + 1)
    return paging.page([summary_of(head) for head in found], position=lambda last: last.id)


@router.get(
    "/v1/faults/diagnoses/{diagnosis_id}",
    name="Read a diagnosis",
    operation_id="get_diagnosis",
    responses=problems(404),
)
async def get_diagnosis(diagnosis_id: DiagnosisId, service: ServiceOf, _principal: Reader) -> DiagnosisRecord:
    """One diagnosis without its bundle."""
    async with service.store.reading() as tx:
        return record_of(await stored_diagnosis(tx, diagnosis_id))


@router.put(
    "/v1/faults/diagnoses/{diagnosis_id}/expiry",
    name="Change when a diagnosis expires",
    operation_id="put_diagnosis_expiry",
    responses=problems(404, *WITH_BODY),
)
async def put_expiry(
    diagnosis_id: DiagnosisId, body: ExpiryChange, service: ServiceOf, principal: Operator
) -> DiagnosisRecord:
    """A monitor extends the expiry while the fault lasts; 0 withdraws the diagnosis."""
    async with service.store.transaction() as tx:
        head = with_expiry(await stored_diagnosis(tx, diagnosis_id), now=service.now(), change=body)
        await tx.diagnoses.set_expiry(diagnosis_id, expires_at=head.expires_at)
        if not body.expires_in_s:
            action, subject = "diagnosis.withdrawn", f"faults/diagnoses/{diagnosis_id}"
            await service.audit(tx, actor=principal.actor, action=action, subject=subject)
    return record_of(head)


@router.get(
    "/v1/faults/diagnoses/{diagnosis_id}/bundle",
    name="Read a diagnosis's bundle",
    operation_id="get_diagnosis_bundle",
    response_class=Response,
    responses=AS_LINES | problems(404, 409),
)
async def get_bundle(diagnosis_id: DiagnosisId, service: ServiceOf, _principal: Reader) -> Response:
    """The evidence of the diagnosis, as `fleetwright faults replay` takes it."""
    return Response(content=text_of(await _packed(service, diagnosis_id)), media_type=BUNDLE_MEDIA_TYPE)


@router.post(
    "/v1/faults/diagnoses/{diagnosis_id}/replay",
    name="Replay a diagnosis's bundle",
    operation_id="replay_diagnosis_bundle",
    responses=problems(404, 409),
)
async def replay_bundle(diagnosis_id: DiagnosisId, service: ServiceOf, _principal: Planner) -> BundleReplay:
    """The diagnoses that this version gives for the same observations.  The replay is not stored."""
    packed = await _packed(service, diagnosis_id)
    async with service.store.reading() as tx:
        diagnosis = read_report(await stored_diagnosis(tx, diagnosis_id)).diagnosis
    found = await service.solver_pool.solve(
        lambda: replayed(packed, diagnosis_id=diagnosis_id, diagnosis=diagnosis, clock_s=service.monotonic_s)
    )
    service.metrics.faults.observe_replay(same=found.same)
    return found


async def _packed(service: Service, diagnosis_id: str) -> bytes:
    async with service.store.reading() as tx:
        await stored_diagnosis(tx, diagnosis_id)
        packed = await tx.diagnoses.bundle(diagnosis_id)
    if packed is None:
        raise conflict(f"diagnosis {diagnosis_id} has no bundle: it was reported without one")
    return packed
