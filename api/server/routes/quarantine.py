"""`/v1/faults/quarantine`: read rules and the state of every node, request operator actions, and run evaluations."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from api.schemas.faults import NODE_PATTERN
from api.schemas.leases import REMEDIATION_LEASE
from api.schemas.quarantine import (
    ActionRequest,
    BreakerView,
    Evaluation,
    EvaluationResult,
    NodeView,
    QuarantineView,
    StoredRules,
)
from api.server.auth import FleetOperator, FleetReporter, Reader
from api.server.etags import IfMatch, IfNoneMatch, write_precondition
from api.server.fencing import HeldTerm, refuse_stale
from api.server.idempotency import IdempotencyKey, IdempotentRequest, Reply
from api.server.openapi import CACHED, TAGGED, WITH_BODY, problems
from api.server.quarantine import RULES, evaluate, request_action, reset_breaker, view
from api.server.route import ServiceRoute
from api.server.service import ServiceOf
from api.server.versioned import AuditAction, DocumentVersion, current, replace, send_body
from api.store import Transaction, canonical_json
from faults.quarantine import Decision, QuarantineRules
from fleet.documents import read_stored

router = APIRouter(tags=["faults"], route_class=ServiceRoute)
NodeInPath = Annotated[str, Path(pattern=NODE_PATTERN)]


@router.get(
    "/v1/faults/quarantine/rules",
    name="Read the quarantine rules",
    operation_id="get_quarantine_rules",
    response_model=StoredRules,
    responses=CACHED | problems(),
)
async def get_rules(service: ServiceOf, _principal: Reader, if_none_match: IfNoneMatch = None) -> Response:
    """The mode and all guardrails of the policy."""
    async with service.store.reading() as tx:
        return _send(await current(tx, RULES), if_none_match=if_none_match)


@router.put(
    "/v1/faults/quarantine/rules",
    name="Replace the quarantine rules",
    operation_id="put_quarantine_rules",
    response_model=StoredRules,
    responses=TAGGED | problems(409, 412, 428, *WITH_BODY),
)
async def put_rules(
    body: QuarantineRules, service: ServiceOf, principal: FleetOperator, if_match: IfMatch = None
) -> Response:
    """Under `If-Match`.  A change from mode `observe` to another mode discards the dry-run states."""
    precondition = write_precondition(if_match=if_match)
    rules = body.model_dump(mode="json")
    _before, after = await replace(
        service,
        RULES,
        body=canonical_json(rules),
        precondition=precondition,
        actor=principal.actor,
        audit_action=lambda _before, _after: AuditAction("quarantine-rules.replaced", "faults/quarantine/rules", rules),
    )
    return _send(after)


@router.get(
    "/v1/faults/quarantine",
    name="Read the quarantine state",
    operation_id="get_quarantine",
    responses=problems(),
)
async def get_quarantine(service: ServiceOf, _principal: Reader) -> QuarantineView:
    """Nodes with a history, the circuit breaker, the desired state and the newest decisions."""
    async with service.store.reading() as tx:
        return await view(tx)


@router.post(
    "/v1/faults/quarantine/evaluations",
    name="Evaluate the quarantine policy",
    operation_id="evaluate_quarantine",
    response_model=EvaluationResult,
    responses=problems(409, *WITH_BODY),
)
async def post_evaluation(
    *,
    body: Evaluation,
    request: Request,
    service: ServiceOf,
    principal: FleetReporter,
    held: HeldTerm,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Takes the observed fleet and returns its desired state.  Mode `observe` requests nothing."""
    idempotent = await IdempotentRequest.of(request, service=service, principal=principal, key=idempotency_key)
    if (saved := await idempotent.saved()) is not None:
        return saved
    decisions: list[Decision] = []

    async def work(tx: Transaction) -> Reply:
        await refuse_stale(tx, lease=REMEDIATION_LEASE, held=held, actor=principal.actor)
        evaluated = await evaluate(service, tx, body, actor=principal.actor)
        decisions.extend(evaluated.decisions)
        return Reply(body=evaluated.result.model_dump_json(), status=HTTPStatus.OK)

    response = await idempotent.write(work)
    service.metrics.faults.observe_decisions(decisions)
    return response


@router.post(
    "/v1/faults/quarantine/nodes/{node}/actions",
    name="Request an action on a node",
    operation_id="request_node_action",
    status_code=HTTPStatus.ACCEPTED,
    responses=problems(404, 409, *WITH_BODY),
)
async def post_action(node: NodeInPath, body: ActionRequest, service: ServiceOf, principal: FleetOperator) -> NodeView:
    """Approve or decline a proposal, release or cordon a node.  The next evaluation applies the action."""
    return await request_action(service, node, body.action, actor=principal.actor)


@router.post(
    "/v1/faults/quarantine/breaker/reset",
    name="Reset the circuit breaker",
    operation_id="reset_quarantine_breaker",
    status_code=HTTPStatus.ACCEPTED,
    responses=problems(409),
)
async def post_reset(service: ServiceOf, principal: FleetOperator) -> BreakerView:
    """Allow quarantines again from the next evaluation, which opens the breaker again if as many are suspected."""
    return await reset_breaker(service, actor=principal.actor)


def _send(found: DocumentVersion, *, if_none_match: str | None = None) -> Response:
    rules = read_stored(QuarantineRules, found.body or "")
    body = StoredRules(version=found.version, rules=rules).model_dump_json()
    return send_body(body, etag=found.etag or "", if_none_match=if_none_match)
