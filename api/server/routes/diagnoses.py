"""`/v1/faults/diagnoses`: store and read diagnoses that fault monitors report, with their bundles."""

from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from api.jobs.bundles import text_of as unpacked
from api.jobs.diagnoses import audit_detail, head_of, read_report, record_of, refuse_invalid, summary_of, with_expiry
from api.jobs.kinds import BUNDLE_REPLAY, DIAGNOSES_PATH, DIAGNOSIS
from api.schemas.faults import BundleReplay, DiagnosisRecord, DiagnosisReport, DiagnosisSummary, ExpiryChange
from api.schemas.pages import Page
from api.server.auth import Planner, Reader, Reporter
from api.server.cursors import Paging
from api.server.idempotency import IdempotencyKey, IdempotentRequest, Reply
from api.server.job_requests import ACCEPTED, PREFER, run_job, run_raw_job, text_of
from api.server.openapi import WITH_BODY, Responses, problems
from api.server.problems import conflict, not_found
from api.server.projects import WHOLE_FLEET, ProjectAccess, ProjectOf, refuse_over_quota
from api.server.route import ServiceRoute, reads_raw
from api.server.routes.jobs import output_response
from api.server.service import Service, ServiceOf
from api.store import ID_PATTERN, DiagnosisHead, JobRecord, Transaction, new_id

router = APIRouter(tags=["faults"], route_class=ServiceRoute)
DiagnosisId = Annotated[str, Path(pattern=ID_PATTERN)]

BUNDLE_MEDIA_TYPE = "application/x-ndjson"
AS_LINES: Responses = {
    200: {
        "description": "The bundle, one JSON value per line.",
        "content": {BUNDLE_MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}


async def _report_raw(request: Request) -> Response:
    service: Service = request.app.state.service
    return await run_raw_job(request, service, kind=DIAGNOSIS, respond=partial(_stored_response, service))


async def _stored_response(service: Service, job: JobRecord) -> Response:
    """Respond with the diagnosis that a job has stored with its bundle."""
    async with service.store.reading() as tx:
        head = await stored_diagnosis(tx, job.id)
    service.metrics.faults.observe_report(read_report(head).diagnosis)
    return Response(
        content=record_of(head).model_dump_json(),
        status_code=HTTPStatus.CREATED,
        headers=_location(head),
        media_type="application/json",
    )


def _location(head: DiagnosisHead) -> dict[str, str]:
    return {"Location": f"/v1/faults/diagnoses/{head.id}"}


@router.post(
    "/v1/faults/diagnoses",
    name="Report a diagnosis",
    operation_id="report_diagnosis",
    status_code=HTTPStatus.CREATED,
    response_model=DiagnosisRecord,
    responses=ACCEPTED | problems(409, *WITH_BODY),
    dependencies=[PREFER],
)
@reads_raw(_report_raw)
async def report_diagnosis(
    *,
    body: DiagnosisReport,
    request: Request,
    service: ServiceOf,
    principal: Reporter,
    project: ProjectOf,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Store a diagnosis.  The quarantine policy uses it until it expires."""
    refuse_invalid(body)
    if body.bundle is not None:
        return await run_job(
            request,
            service,
            principal,
            kind=DIAGNOSIS,
            text=text_of(await request.body()),
            respond=partial(_stored_response, service),
            key=idempotency_key,
        )
    idempotent = await IdempotentRequest.of(request, service=service, principal=principal, key=idempotency_key)
    if (saved := await idempotent.saved()) is not None:
        return saved
    now = service.now()

    async def work(tx: Transaction) -> Reply:
        diagnosis_id = new_id(now, after=await tx.newest_id(DIAGNOSIS))
        head = head_of(
            body,
            diagnosis_id=diagnosis_id,
            now=now,
            actor=principal.actor,
            bundle_sha256=None,
            project=project.of_new,
        )
        await refuse_over_quota(tx, project.of_new, now=now, new_bytes=len(head.report))
        await tx.diagnoses.add(head, bundle=None)
        await service.audit(
            tx,
            actor=principal.actor,
            action="diagnosis.reported",
            subject=f"faults/diagnoses/{head.id}",
            detail=audit_detail(head, body.diagnosis),
            project=head.project,
        )
        return Reply(body=record_of(head).model_dump_json(), headers=_location(head))

    response = await idempotent.write(work)
    service.metrics.faults.observe_report(body.diagnosis)
    return response


@router.get("/v1/faults/diagnoses", name="List diagnoses", operation_id="list_diagnoses", responses=problems())
async def list_diagnoses(
    *,
    service: ServiceOf,
    _principal: Reader,
    project: ProjectOf,
    paging: Paging,
    active: Annotated[bool, Query(description="Only diagnoses that have not expired.")] = False,
) -> Page[DiagnosisSummary]:
    """Diagnoses, newest first."""
    before = paging.start(str)
    async with service.store.reading() as tx:
        found = await tx.diagnoses.page(
            before_id=before,
            limit=paging.limit + 1,
            project=project.visible,
            active_at=service.now() if active else None,
        )
    return paging.page([summary_of(head) for head in found], position=lambda last: last.id)


@router.get(
    "/v1/faults/diagnoses/{diagnosis_id}",
    name="Read a diagnosis",
    operation_id="get_diagnosis",
    responses=problems(404),
)
async def get_diagnosis(
    diagnosis_id: DiagnosisId, service: ServiceOf, _principal: Reader, project: ProjectOf
) -> DiagnosisRecord:
    """One diagnosis without its bundle."""
    async with service.store.reading() as tx:
        return record_of(await stored_diagnosis(tx, diagnosis_id, project=project))


@router.put(
    "/v1/faults/diagnoses/{diagnosis_id}/expiry",
    name="Change when a diagnosis expires",
    operation_id="put_diagnosis_expiry",
    responses=problems(404, *WITH_BODY),
)
async def put_expiry(
    diagnosis_id: DiagnosisId, body: ExpiryChange, service: ServiceOf, principal: Reporter, project: ProjectOf
) -> DiagnosisRecord:
    """A monitor extends the expiry while the fault lasts; 0 withdraws the diagnosis."""
    async with service.store.transaction() as tx:
        found = await stored_diagnosis(tx, diagnosis_id, project=project)
        head = with_expiry(found, now=service.now(), change=body)
        await tx.diagnoses.set_expiry(diagnosis_id, expires_at=head.expires_at)
        if not body.expires_in_s:
            action, subject = "diagnosis.withdrawn", f"faults/diagnoses/{diagnosis_id}"
            await service.audit(tx, actor=principal.actor, action=action, subject=subject, project=head.project)
    return record_of(head)


@router.get(
    "/v1/faults/diagnoses/{diagnosis_id}/bundle",
    name="Read a diagnosis's bundle",
    operation_id="get_diagnosis_bundle",
    response_class=Response,
    responses=AS_LINES | problems(404, 409),
)
async def get_bundle(diagnosis_id: DiagnosisId, service: ServiceOf, _principal: Reader, project: ProjectOf) -> Response:
    """The evidence of the diagnosis, as `fleetwright faults replay` takes it."""
    return Response(content=unpacked(await _packed(service, diagnosis_id, project)), media_type=BUNDLE_MEDIA_TYPE)


@router.post(
    "/v1/faults/diagnoses/{diagnosis_id}/replay",
    name="Replay a diagnosis's bundle",
    operation_id="replay_diagnosis_bundle",
    response_model=BundleReplay,
    responses=ACCEPTED | problems(404, 409),
    dependencies=[PREFER],
)
async def replay_bundle(
    diagnosis_id: DiagnosisId,
    request: Request,
    service: ServiceOf,
    principal: Planner,
    project: ProjectOf,
) -> Response:
    """The diagnoses that this version gives for the same observations.  The replay is kept only with its job."""
    await _packed(service, diagnosis_id, project)

    async def respond(job: JobRecord) -> Response:
        response = await output_response(service, job)
        replay = BundleReplay.model_validate_json(bytes(response.body))
        service.metrics.faults.observe_replay(same=replay.same)
        return response

    subject = f"{DIAGNOSES_PATH}/{diagnosis_id}"
    return await run_job(request, service, principal, kind=BUNDLE_REPLAY, text="", subject=subject, respond=respond)


async def stored_diagnosis(
    tx: Transaction, diagnosis_id: str, *, project: ProjectAccess = WHOLE_FLEET
) -> DiagnosisHead:
    """Return a stored diagnosis that the project sees, or raise 404."""
    found = await tx.diagnoses.get(diagnosis_id, project=project.visible)
    if found is None:
        raise not_found(f"diagnosis {diagnosis_id}")
    return found


async def _packed(service: Service, diagnosis_id: str, project: ProjectAccess) -> bytes:
    async with service.store.reading() as tx:
        await stored_diagnosis(tx, diagnosis_id, project=project)
        packed = await tx.diagnoses.bundle(diagnosis_id)
    if packed is None:
        raise conflict(f"diagnosis {diagnosis_id} has no bundle: it was reported without one")
    return packed
