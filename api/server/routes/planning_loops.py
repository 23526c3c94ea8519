"""`/v1/planning-loops`: manage continuous planning, and store the controller's reports and decisions."""

from http import HTTPStatus

from fastapi import APIRouter

from api.schemas.names import NAME_PATTERN, Name
from api.schemas.pages import Page
from api.schemas.planning_loops import LoopPlan, LoopPlanRequest, PlanningLoopStatus, ReportedLoopStatus
from api.schemas.tokens import TokenScope
from api.server.auth import Reader, Reporter, RequireScope
from api.server.cursors import Paging
from api.server.fencing import HeldTerm
from api.server.openapi import WITH_BODY, problems
from api.server.planning_loops import PLANNING_LOOPS, keep_report, read_report, set_plan
from api.server.problems import not_found
from api.server.projects import ProjectOf
from api.server.route import ServiceRoute, add_routes
from api.server.routes.collections import CollectionText, OperationText, collection_routes
from api.server.service import ServiceOf
from fleet.documents import read_stored

router = APIRouter(tags=["planning-loops"], route_class=ServiceRoute)
add_routes(
    router,
    collection_routes(
        PLANNING_LOOPS,
        key="name",
        pattern=NAME_PATTERN,
        writer=RequireScope(TokenScope.OPERATE),
        text=CollectionText(
            singular="planning_loop",
            lists=OperationText("List planning loops", "Planning loops by name."),
            gets=OperationText("Read a planning loop", "One planning loop."),
            puts=OperationText(
                "Create or replace a planning loop",
                "Create with `If-None-Match: *`, replace with `If-Match`.  The targets exist in its project and have "
                "`demand`; a target has one loop in mode `apply`.",
            ),
            deletes=OperationText(
                "Delete a planning loop", "Delete a planning loop with its report; its targets keep their plans."
            ),
        ),
    ),
)


@router.get(
    "/v1/planning-loop-statuses",
    name="List statuses of planning loops",
    operation_id="list_planning_loop_statuses",
    responses=problems(),
)
async def list_statuses(
    service: ServiceOf, _principal: Reader, paging: Paging, project: ProjectOf
) -> Page[ReportedLoopStatus]:
    """The last reports on all planning loops, by name, without their states.  A page has fewer items than its limit
    where loops have no report.
    """
    after = paging.start(str)
    async with service.store.reading() as tx:
        found = await PLANNING_LOOPS.page(tx, after=after, limit=paging.limit + 1, project=project)
        loops = paging.page(found, position=lambda last: last.name)
        reports = await tx.loop_statuses.of([each.name for each in loops.items])
    items = tuple(
        ReportedLoopStatus(planning_loop=each.planning_loop, status=read_stored(PlanningLoopStatus, each.body))
        for each in reports
    )
    return Page[ReportedLoopStatus](items=items, next_cursor=loops.next_cursor)


@router.get(
    "/v1/planning-loops/{name}/status",
    name="Read a planning loop's status",
    operation_id="get_planning_loop_status",
    responses=problems(404),
)
async def get_status(name: Name, service: ServiceOf, _principal: Reader, project: ProjectOf) -> PlanningLoopStatus:
    """The last report on a planning loop, with the controller's state."""
    async with service.store.reading() as tx:
        await PLANNING_LOOPS.stored(tx, name, project=project)
        found = await read_report(tx, name)
    if found is None:
        raise not_found(f"report on planning loop {name!r} yet")
    return found


@router.put(
    "/v1/planning-loops/{name}/status",
    name="Report a planning loop's status",
    operation_id="put_planning_loop_status",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(404, 409, *WITH_BODY),
)
async def put_status(
    *, name: Name, body: PlanningLoopStatus, service: ServiceOf, principal: Reporter, project: ProjectOf, held: HeldTerm
) -> None:
    """Store the controller's report.  The audit records a change of phase, plan or wanted replicas."""
    await keep_report(service, name, body, actor=principal.actor, project=project, held=held)


@router.post(
    "/v1/planning-loops/{name}/plan",
    name="Set the plan of a planning loop's targets",
    operation_id="set_planning_loop_plan",
    responses=problems(404, 409, *WITH_BODY),
)
async def post_plan(
    *, name: Name, body: LoopPlanRequest, service: ServiceOf, principal: Reporter, project: ProjectOf, held: HeldTerm
) -> LoopPlan:
    """Set the plan of all targets of a loop in mode `apply`, or of none; a repetition changes nothing.

    For the holder of the lease `controller`: the term is required.  409 under the global freeze, or where the loop or
    the plan of a target has changed.
    """
    return await set_plan(service, name, body, actor=principal.actor, project=project, held=held)
