"""`/v1/faults/verdicts`: what watchers say is wrong, with the bundles that prove it."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from api.schemas.faults import BeliefChange, BundleReplay, VerdictRecord, VerdictReport, VerdictSummary
from api.schemas.pages import Cursor, Page, PageLimit
from api.server.auth import Operator, Planner, Reader, TokenFirst
from api.server.bundles import text_of
from api.server.cursors import page_of, read_cursor
from api.server.diagnoses import believed_from, head_of, known, read_report, record_of, summary_of, told
from api.server.diagnosis_validation import refuse_unfit
from api.server.idempotency import IdempotencyKey, Once, Reply
from api.server.openapi import WITH_BODY, Responses, problems
from api.server.problems import ProblemError
from api.server.service import Service, ServiceOf
from api.server.uuid7 import ID_PATTERN, new_id
from api.store import Transaction

router = APIRouter(tags=["faults"], route_class=TokenFirst)
VerdictId = Annotated[str, Path(pattern=ID_PATTERN)]

BUNDLE_MEDIA_TYPE = "application/x-ndjson"
AS_LINES: Responses = {
    200: {"description": "The bundle, a value a line.", "content": {BUNDLE_MEDIA_TYPE: {"schema": {"type": "string"}}}}
}


@router.post(
    "/v1/faults/verdicts",
    name="Report a verdict",
    operation_id="report_fault_verdict",
    status_code=HTTPStatus.CREATED,
    response_model=VerdictRecord,
    responses=problems(409, *WITH_BODY),
)
async def report_verdict(
    body: VerdictReport,
    request: Request,
    service: ServiceOf,
    principal: Operator,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Keep a verdict.  It counts against its node in looks for as long as it is believed."""
    once = await Once.of(request, service=service, principal=principal, key=idempotency_key)
    if (saved := await once.saved()) is not None:
        return saved
    refuse_unfit(body)
    bundle = await service.planning.check_bundle(body.bundle) if body.bundle is not None else None
    now = service.now()
    sha256 = bundle.sha256 if bundle is not None else None
    head = head_of(body, verdict_id=new_id(now), now=now, actor=principal.actor, bundle_sha256=sha256)

    async def work(tx: Transaction) -> Reply:
        await tx.verdicts.add(head, bundle=bundle.packed if bundle is not None else None)
        await service.audit(
            tx,
            actor=principal.actor,
            action="fault-verdict.reported",
            subject=f"faults/verdicts/{head.id}",
            detail=told(head, body.verdict),
        )
        return Reply(body=record_of(head).model_dump_json(), headers={"Location": f"/v1/faults/verdicts/{head.id}"})

    response = await once.write(work)
    service.metrics.faults.observe_report(body.verdict)
    return response


@router.get("/v1/faults/verdicts", name="List verdicts", operation_id="list_fault_verdicts", responses=problems())
async def list_verdicts(
    service: ServiceOf,
    _principal: Reader,
    limit: Annotated[PageLimit, Query()] = 50,
    cursor: Annotated[Cursor | None, Query()] = None,
) -> Page[VerdictSummary]:
    """Verdicts, newest first."""
    (before,) = read_cursor(cursor, str)
    async with service.store.reading() as tx:
        found = await tx.verdicts.page(before_id=before, limit=limit + 1)
    return page_of([summary_of(head) for head in found], limit=limit, position=lambda last: (last.id,))


@router.get(
    "/v1/faults/verdicts/{verdict_id}",
    name="Read a verdict",
    operation_id="get_fault_verdict",
    responses=problems(404),
)
async def get_verdict(verdict_id: VerdictId, service: ServiceOf, _principal: Reader) -> VerdictRecord:
    """One verdict without its bundle."""
    async with service.store.reading() as tx:
        return record_of(await known(tx, verdict_id))


@router.put(
    "/v1/faults/verdicts/{verdict_id}/belief",
    name="Believe a verdict on, or no longer",
    operation_id="put_fault_belief",
    responses=problems(404, *WITH_BODY),
)
async def put_belief(
    verdict_id: VerdictId, body: BeliefChange, service: ServiceOf, principal: Operator
) -> VerdictRecord:
    """A watcher says again and again what it still believes; what it does not say again is forgotten by itself."""
    async with service.store.transaction() as tx:
        head = believed_from(await known(tx, verdict_id), now=service.now(), change=body)
        await tx.verdicts.believe(verdict_id, until=head.believed_until)
        if not body.believed_for_s:
            action, subject = "fault-verdict.withdrawn", f"faults/verdicts/{verdict_id}"
            await service.audit(tx, actor=principal.actor, action=action, subject=subject)
    return record_of(head)


@router.get(
    "/v1/faults/verdicts/{verdict_id}/bundle",
    name="Read a verdict's bundle",
    operation_id="get_fault_bundle",
    response_class=Response,
    responses=AS_LINES | problems(404, 409),
)
async def get_bundle(verdict_id: VerdictId, service: ServiceOf, _principal: Reader) -> Response:
    """All that the verdict rests on, as `fleetwright faults replay` takes it."""
    return Response(content=text_of(await _packed(service, verdict_id)), media_type=BUNDLE_MEDIA_TYPE)


@router.post(
    "/v1/faults/verdicts/{verdict_id}/replay",
    name="Replay a verdict's bundle",
    operation_id="replay_fault_bundle",
    responses=problems(404, 409),
)
async def replay_bundle(verdict_id: VerdictId, service: ServiceOf, _principal: Planner) -> BundleReplay:
    """What this version of the program says of the same observations.  Nothing is kept of it."""
    packed = await _packed(service, verdict_id)
    async with service.store.reading() as tx:
        verdict = read_report(await known(tx, verdict_id)).verdict
    found = await service.planning.replay(packed, verdict_id=verdict_id, verdict=verdict)
    service.metrics.faults.observe_replay(same=found.same)
    return found


async def _packed(service: Service, verdict_id: str) -> bytes:
    async with service.store.reading() as tx:
        await known(tx, verdict_id)
        packed = await tx.verdicts.bundle(verdict_id)
    if packed is None:
        said = f"verdict {verdict_id} has no bundle: it was reported without one"
        raise ProblemError(status=HTTPStatus.CONFLICT, kind="conflict", detail=said)
    return packed
