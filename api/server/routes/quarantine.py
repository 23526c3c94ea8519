"""`/v1/faults/isolation`: by which rules nodes go, where each stands, what a look at them gives."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from api.schemas.faults import NODE_PATTERN
from api.schemas.quarantine import BreakerView, IsolationView, Look, LookOutcome, NodeView, StoredRules, WishRequest
from api.server.auth import Operator, Reader, TokenFirst
from api.server.etags import IfMatch, IfNoneMatch, write_precondition
from api.server.idempotency import IdempotencyKey, Once, Reply
from api.server.openapi import CACHED, TAGGED, WITH_BODY, problems
from api.server.quarantine import RULES, close_breaker, look, view, wish
from api.server.service import ServiceOf
from api.server.versioned import Deed, Edition, current, replace, send_body
from api.store import Transaction, canonical_json
from faults.quarantine import Decision, IsolationRules

router = APIRouter(tags=["faults"], route_class=TokenFirst)
NodeInPath = Annotated[str, Path(pattern=NODE_PATTERN)]


@router.get(
    "/v1/faults/isolation/rules",
    name="Read the isolation rules",
    operation_id="get_isolation_rules",
    response_model=StoredRules,
    responses=CACHED | problems(),
)
async def get_rules(service: ServiceOf, _principal: Reader, if_none_match: IfNoneMatch = None) -> Response:
    """How far decisions go, and what may say no."""
    async with service.store.reading() as tx:
        return _send(await current(tx, RULES), if_none_match=if_none_match)


@router.put(
    "/v1/faults/isolation/rules",
    name="Replace the isolation rules",
    operation_id="put_isolation_rules",
    response_model=StoredRules,
    responses=TAGGED | problems(409, 412, 428, *WITH_BODY),
)
async def put_rules(
    body: IsolationRules, service: ServiceOf, principal: Operator, if_match: IfMatch = None
) -> Response:
    """Under `If-Match`.  What was only a dry run is forgotten when the mode is raised."""
    precondition = write_precondition(if_match=if_match)
    said = body.model_dump(mode="json")
    _before, after = await replace(
        service,
        RULES,
        body=canonical_json(said),
        precondition=precondition,
        actor=principal.actor,
        deed=lambda _before, _after: Deed("isolation-rules.replaced", "faults/quarantine/rules", said),
    )
    return _send(after)


@router.get("/v1/faults/isolation", name="Read the isolation state", operation_id="get_isolation", responses=problems())
async def get_isolation(service: ServiceOf, _principal: Reader) -> IsolationView:
    """Where every node stands that has a story, the breaker, and what is wanted."""
    async with service.store.reading() as tx:
        return await view(tx)


@router.post(
    "/v1/faults/isolation/looks",
    name="Look at the fleet",
    operation_id="look_at_fleet",
    response_model=LookOutcome,
    responses=problems(409, *WITH_BODY),
)
async def post_look(
    body: Look,
    request: Request,
    service: ServiceOf,
    principal: Operator,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """What a controller sees; what shall be so.  In mode `observe` nothing is ever wanted."""
    once = await Once.of(request, service=service, principal=principal, key=idempotency_key)
    if (saved := await once.saved()) is not None:
        return saved
    decisions: list[Decision] = []

    async def work(tx: Transaction) -> Reply:
        looked = await look(service, tx, body, actor=principal.actor)
        decisions.extend(looked.decisions)
        return Reply(body=looked.answer.model_dump_json(), status=HTTPStatus.OK)

    response = await once.write(work)
    service.metrics.faults.observe_decisions(decisions)
    return response


@router.post(
    "/v1/faults/isolation/nodes/{node}",
    name="Say what is wanted of a node",
    operation_id="wish_for_node",
    status_code=HTTPStatus.ACCEPTED,
    responses=problems(404, 409, *WITH_BODY),
)
async def post_wish(node: NodeInPath, body: WishRequest, service: ServiceOf, principal: Operator) -> NodeView:
    """Approve or decline a proposal, release a node, keep one out.  The next look does it."""
    return await wish(service, node, body.wish, actor=principal.actor)


@router.post(
    "/v1/faults/isolation/breaker/close",
    name="Close the breaker",
    operation_id="close_isolation_breaker",
    status_code=HTTPStatus.ACCEPTED,
    responses=problems(409),
)
async def post_close(service: ServiceOf, principal: Operator) -> BreakerView:
    """Let isolations go on.  The next look does it, and opens it again if as many are still accused."""
    return await close_breaker(service, actor=principal.actor)


def _send(found: Edition, *, if_none_match: str | None = None) -> Response:
    rules = IsolationRules.model_validate_json(found.body or "")
    body = StoredRules(version=found.version, rules=rules).model_dump_json()
    return send_body(body, etag=found.etag or "", if_none_match=if_none_match)
