"""`/v1/tokens`: create, list and revoke API tokens."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from api.schemas.pages import Page
from api.schemas.tokens import TokenCreated, TokenInfo, TokenRequest
from api.server.auth import Admin, actor_of
from api.server.cursors import Paging
from api.server.idempotency import IdempotencyKey, IdempotentRequest, Reply
from api.server.openapi import WITH_BODY, problems
from api.server.problems import ProblemError, not_found
from api.server.projects import quotas_of
from api.server.route import ServiceRoute
from api.server.service import ServiceOf
from api.server.tokens import new_token, token_info
from api.store import Transaction

router = APIRouter(tags=["tokens"], route_class=ServiceRoute)
TokenId = Annotated[str, Path(pattern=r"^[a-z0-9]{12}$")]


@router.post(
    "/v1/tokens",
    name="Make a token",
    operation_id="create_token",
    status_code=HTTPStatus.CREATED,
    response_model=TokenCreated,
    responses=problems(409, *WITH_BODY),
)
async def create_token(
    body: TokenRequest,
    request: Request,
    service: ServiceOf,
    principal: Admin,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Only this response contains the secret; a repeated idempotency key returns the token without it."""
    idempotent = await IdempotentRequest.of(request, service=service, principal=principal, key=idempotency_key)
    if (saved := await idempotent.saved()) is not None:
        return saved
    new = new_token(body, now=service.now(), created_by=principal.actor)

    async def work(tx: Transaction) -> Reply:
        await tx.audit.lock()  # otherwise the project could be deleted meanwhile
        if body.project is not None:
            await quotas_of(tx, body.project)
        await tx.tokens.add(new.record)
        info = token_info(new.record)
        await service.audit(
            tx,
            actor=principal.actor,
            action="token.created",
            subject=f"tokens/{info.id}",
            detail={"name": body.name, "scopes": sorted(body.scopes)}
            | ({"project": body.project} if body.project is not None else {}),
        )
        return Reply(
            body=TokenCreated(info=info, secret=new.secret).model_dump_json(),
            kept_body=TokenCreated(info=info, secret=None).model_dump_json(),
        )

    return await idempotent.write(work)


@router.get("/v1/tokens", name="List tokens", operation_id="list_tokens", responses=problems())
async def list_tokens(
    service: ServiceOf,
    _principal: Admin,
    paging: Paging,
) -> Page[TokenInfo]:
    """All tokens, newest first, revoked ones included."""
    before = paging.start(str)
    async with service.store.reading() as tx:
        found = await tx.tokens.page(before_id=before, limit=paging.limit + 1)
    return paging.page([token_info(record) for record in found], position=lambda last: last.id)


@router.delete(
    "/v1/tokens/{token_id}",
    name="Revoke a token",
    operation_id="revoke_token",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(404, 409),
)
async def revoke_token(token_id: TokenId, service: ServiceOf, principal: Admin) -> None:
    """The token stops working with the next request, on other replicas within a second.  It cannot revoke itself."""
    if principal.actor == actor_of(token_id):
        raise ProblemError(
            status=HTTPStatus.CONFLICT,
            kind="own-token",
            detail="this is the token you are using; revoke it with another",
        )
    async with service.store.transaction() as tx:
        if await tx.tokens.revoke(token_id, at=service.now()):
            await service.audit(tx, actor=principal.actor, action="token.revoked", subject=f"tokens/{token_id}")
        elif await tx.tokens.get(token_id) is None:
            raise not_found(f"token {token_id!r}")
    service.token_cache.clear()
