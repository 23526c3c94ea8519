"""`/v1/targets`: manage running applications and their plans, and store the controller's reports."""

from http import HTTPStatus

from fastapi import APIRouter

from api.schemas.names import NAME_PATTERN, Name
from api.schemas.pages import Page
from api.schemas.target_state import Approval, ApprovalRequest
from api.schemas.targets import ReportedStatus, TargetStatus
from api.schemas.tokens import TokenScope
from api.server.auth import Approver, Reader, Reporter, RequireScope
from api.server.cursors import Paging
from api.server.fencing import HeldTerm
from api.server.openapi import WITH_BODY, problems
from api.server.problems import not_found
from api.server.projects import ProjectOf
from api.server.route import ServiceRoute, add_routes
from api.server.routes.collections import CollectionText, OperationText, collection_routes
from api.server.service import ServiceOf
from api.server.targets import TARGETS, approve, keep_report
from fleet.documents import read_stored

router = APIRouter(tags=["targets"], route_class=ServiceRoute)
add_routes(
    router,
    collection_routes(
        TARGETS,
        key="name",
        pattern=NAME_PATTERN,
        writer=RequireScope(TokenScope.OPERATE),
        text=CollectionText(
            singular="target",
            lists=OperationText("List targets", "Targets by name."),
            gets=OperationText("Read a target", "One target."),
            puts=OperationText(
                "Create or replace a target",
                "Create with `If-None-Match: *`, replace with `If-Match`.  A dry run makes the same checks.",
            ),
            deletes=OperationText("Delete a target", "Delete a target; its application keeps running."),
        ),
    ),
)


@router.get(
    "/v1/target-statuses",
    name="List target statuses",
    operation_id="list_target_statuses",
    responses=problems(),
)
async def list_statuses(
    service: ServiceOf, _principal: Reader, paging: Paging, project: ProjectOf
) -> Page[ReportedStatus]:
    """The last reports on all targets, by name.  A page has fewer items than its limit where targets have no report."""
    after = paging.start(str)
    async with service.store.reading() as tx:
        found = await TARGETS.page(tx, after=after, limit=paging.limit + 1, project=project)
        targets = paging.page(found, position=lambda last: last.name)
        reports = await tx.statuses.of([each.name for each in targets.items])
    items = tuple(ReportedStatus(target=each.target, status=read_stored(TargetStatus, each.body)) for each in reports)
    return Page[ReportedStatus](items=items, next_cursor=targets.next_cursor)


@router.get(
    "/v1/targets/{name}/status",
    name="Read a target's status",
    operation_id="get_target_status",
    responses=problems(404),
)
async def get_status(name: Name, service: ServiceOf, _principal: Reader, project: ProjectOf) -> TargetStatus:
    """The last report on a target."""
    async with service.store.reading() as tx:
        await TARGETS.get(tx, name, project=project)
        found = await tx.statuses.get(name)
    if found is None:
        raise not_found(f"report on target {name!r} yet")
    return read_stored(TargetStatus, found.body)


@router.put(
    "/v1/targets/{name}/status",
    name="Report a target's status",
    operation_id="put_target_status",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(404, 409, *WITH_BODY),
)
async def put_status(
    *, name: Name, body: TargetStatus, service: ServiceOf, principal: Reporter, project: ProjectOf, held: HeldTerm
) -> None:
    """Store the controller's report.  The audit records a change of anything except the running counts."""
    await keep_report(service, name, body, actor=principal.actor, project=project, held=held)


@router.post(
    "/v1/targets/{name}/approval",
    name="Approve a target's change set",
    operation_id="approve_target",
    responses=problems(404, 409, *WITH_BODY),
)
async def post_approval(
    *, name: Name, body: ApprovalRequest, service: ServiceOf, principal: Approver, project: ProjectOf
) -> Approval:
    """Approve exactly the change set of the last report, as another than who set its plan, changed the target since, or
    reported it.  A repetition before the execution changes nothing.
    """
    return await approve(service, name, body, actor=principal.actor, project=project)
