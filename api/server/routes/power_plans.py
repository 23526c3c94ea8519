"""`/v1/power/plans`: ask which clocks and budgets hold a power tree, read what was planned before."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from api.schemas.pages import Cursor, Page, PageLimit
from api.schemas.power import CapPlanRecord, CapPlanRequest, CapPlanSummary
from api.server.auth import Planner, Reader, TokenFirst
from api.server.cursors import page_of, read_cursor
from api.server.idempotency import IdempotencyKey, Once, Reply
from api.server.openapi import WITH_BODY, problems
from api.server.power_trees import TREES
from api.server.problems import invalid
from api.server.service import Service, ServiceOf
from api.server.stored_results import listed, one_stored, stored_of
from api.server.uuid7 import ID_PATTERN, new_id
from api.store import Transaction
from power.tree import PowerTree

KIND = "power plan"

router = APIRouter(tags=["power"], route_class=TokenFirst)
PlanId = Annotated[str, Path(pattern=ID_PATTERN)]


@router.post(
    "/v1/power/plans",
    name="Plan caps",
    operation_id="create_power_plan",
    status_code=HTTPStatus.CREATED,
    response_model=CapPlanRecord,
    responses=problems(409, *WITH_BODY),
)
async def create_plan(
    body: CapPlanRequest,
    request: Request,
    service: ServiceOf,
    principal: Planner,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Clocks and budgets at the least loss.  A tree that nothing holds is answered too, with what is missing where."""
    once = await Once.of(request, service=service, principal=principal, key=idempotency_key)
    if (saved := await once.saved()) is not None:
        return saved
    tree, tree_version = await _tree_of(service, body)
    plan = await service.planning.plan_caps(body, tree=tree)
    now = service.now()
    record = CapPlanRecord(id=new_id(now), created_at=now, created_by=principal.actor, request=body, plan=plan)
    shown = plan.model_dump(mode="json", include={"tree", "risk", "status", "loss", "binding"})
    shown["tree_version"] = tree_version

    async def work(tx: Transaction) -> Reply:
        await tx.power.add(stored_of(record, kind=KIND, summary=shown, request=body, answer=plan))
        await service.audit(
            tx,
            actor=principal.actor,
            action="power-plan.created",
            subject=f"power/plans/{record.id}",
            detail=shown,
        )
        return Reply(body=record.model_dump_json(), headers={"Location": f"/v1/power/plans/{record.id}"})

    response = await once.write(work)
    service.metrics.observe_cap_plan(status=plan.status, solve_s=plan.solve_s)
    return response


@router.get("/v1/power/plans", name="List plans of caps", operation_id="list_power_plans", responses=problems())
async def list_plans(
    service: ServiceOf,
    _principal: Reader,
    limit: Annotated[PageLimit, Query()] = 50,
    cursor: Annotated[Cursor | None, Query()] = None,
) -> Page[CapPlanSummary]:
    """Plans of caps, newest first."""
    (before,) = read_cursor(cursor, str)
    found = await listed(service, KIND, before_id=before, limit=limit + 1)
    summaries = [CapPlanSummary.model_validate(each) for each in found]
    return page_of(summaries, limit=limit, position=lambda last: (last.id,))


@router.get(
    "/v1/power/plans/{plan_id}",
    name="Read a plan of caps",
    operation_id="get_power_plan",
    response_model=CapPlanRecord,
    responses=problems(404),
)
async def get_plan(plan_id: PlanId, service: ServiceOf, _principal: Reader) -> Response:
    """One plan of caps, with the request it answers."""
    return await one_stored(service, KIND, plan_id, answer_field="plan")


async def _tree_of(service: Service, body: CapPlanRequest) -> tuple[PowerTree, int | None]:
    if body.tree is not None:
        return body.tree, None
    async with service.store.reading() as tx:
        found = await TREES.find(tx, body.tree_name or "")
    if found is None:
        raise invalid("tree_name", f"there is no power tree {body.tree_name!r}; allowed: one that was put, or `tree`")
    return found.spec, found.version
