"""`/v1/plans`: ask for a plan, read the plans there are.  Asking changes nothing but the list of plans."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from api.schemas.pages import Cursor, Page, PageLimit
from api.schemas.plans import PlanRecord, PlanSummary
from api.server.auth import Planner, Reader, TokenFirst
from api.server.catalogues import GPUS, MODELS, OFFERS
from api.server.cursors import page_of, read_cursor
from api.server.idempotency import IdempotencyKey, Once, Reply
from api.server.openapi import WITH_BODY, problems
from api.server.problems import not_found
from api.server.service import ServiceOf
from api.server.uuid7 import ID_PATTERN, new_id
from api.store import StoredPlan, Transaction, canonical_json
from planner.answer import Plan
from planner.request import PlanRequest

router = APIRouter(tags=["plans"], route_class=TokenFirst)
PlanId = Annotated[str, Path(pattern=ID_PATTERN)]


@router.post(
    "/v1/plans",
    name="Ask for a plan",
    operation_id="create_plan",
    status_code=HTTPStatus.CREATED,
    response_model=PlanRecord,
    responses=problems(409, *WITH_BODY),
)
async def create_plan(
    body: PlanRequest,
    request: Request,
    service: ServiceOf,
    principal: Planner,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """The cheapest GPUs for the workloads.  An infeasible request is answered too, with what stands in the way."""
    once = await Once.of(request, service=service, principal=principal, key=idempotency_key)
    if (saved := await once.saved()) is not None:
        return saved
    async with service.store.reading() as tx:
        gpus, models, prices = await GPUS.in_force(tx), await MODELS.in_force(tx), await OFFERS.in_force(tx)
    plan = await service.planning.solve(body, gpus=gpus, models=models, prices=prices)
    now = service.now()
    record = PlanRecord(id=new_id(now), created_at=now, created_by=principal.actor, request=body, plan=plan)

    async def work(tx: Transaction) -> Reply:
        await tx.plans.add(_stored(record))
        await service.audit(
            tx,
            actor=principal.actor,
            action="plan.created",
            subject=f"plans/{record.id}",
            detail={"status": plan.status, "cost_usd_per_h": plan.cost_usd_per_h},
        )
        return Reply(body=record.model_dump_json(), headers={"Location": f"/v1/plans/{record.id}"})

    response = await once.write(work)
    service.metrics.observe_plan(status=plan.status, solve_s=plan.solve_s)
    return response


@router.get("/v1/plans", name="List plans", operation_id="list_plans", responses=problems())
async def list_plans(
    service: ServiceOf,
    _principal: Reader,
    limit: Annotated[PageLimit, Query()] = 50,
    cursor: Annotated[Cursor | None, Query()] = None,
) -> Page[PlanSummary]:
    """Plans, newest first."""
    (before,) = read_cursor(cursor, str)
    async with service.store.reading() as tx:
        found = await tx.plans.page(before_id=before, limit=limit + 1)
    summaries = [
        PlanSummary(
            id=stored.id,
            created_at=stored.created_at,
            created_by=stored.created_by,
            status=stored.status,
            cost_usd_per_h=stored.cost_usd_per_h,
        )
        for stored in found
    ]
    return page_of(summaries, limit=limit, position=lambda last: (last.id,))


@router.get("/v1/plans/{plan_id}", name="Read a plan", operation_id="get_plan", responses=problems(404))
async def get_plan(plan_id: PlanId, service: ServiceOf, _principal: Reader) -> PlanRecord:
    """One plan, with the request it answers."""
    async with service.store.reading() as tx:
        found = await tx.plans.get(plan_id)
    if found is None:
        raise not_found(f"plan {plan_id}")
    return PlanRecord(
        id=found.id,
        created_at=found.created_at,
        created_by=found.created_by,
        request=PlanRequest.model_validate_json(found.request),
        plan=Plan.model_validate_json(found.answer),
    )


def _stored(record: PlanRecord) -> StoredPlan:
    return StoredPlan(
        id=record.id,
        created_at=record.created_at,
        created_by=record.created_by,
        status=record.plan.status,
        cost_usd_per_h=record.plan.cost_usd_per_h,
        request=canonical_json(record.request.model_dump(mode="json")),
        answer=canonical_json(record.plan.model_dump(mode="json")),
    )
