"""`/v1/session`: exchange a token for a cookie, read who the caller is, and end the session."""

from datetime import datetime
from http import HTTPStatus

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.schemas.sessions import SessionInfo
from api.schemas.tokens import TokenRequest
from api.server.auth import TOKEN_FORM, Caller, Principal, actor_of
from api.server.openapi import problems
from api.server.problems import invalid
from api.server.route import ServiceRoute
from api.server.service import Service, ServiceOf
from api.server.sessions import LIFETIME, clear_session, csrf_token, set_session
from api.server.tokens import new_token
from api.store import TokenRecord

router = APIRouter(tags=["sessions"], route_class=ServiceRoute)


@router.post(
    "/v1/session",
    name="Open a session",
    operation_id="open_session",
    status_code=HTTPStatus.CREATED,
    response_model=SessionInfo,
    responses=problems(),
)
async def open_session(request: Request, service: ServiceOf, principal: Caller) -> Response:
    """Takes the token of the `Authorization` header.  The cookie of the response has the same rights for 8 hours at
    most, and ends with the token."""
    request.app.state.session_limiter.spend(principal.actor)
    opener, now = await _opener(request, service, principal), service.now()
    expires_at = min(now + LIFETIME, opener.expires_at or datetime.max.replace(tzinfo=now.tzinfo))
    made = new_token(
        TokenRequest(name=opener.name, scopes=frozenset(principal.scopes)), now=now, created_by=principal.actor
    ).opened_by(opener, expires_at=expires_at)
    async with service.store.transaction() as tx:
        await tx.tokens.add(made.record)
        await service.audit(tx, actor=principal.actor, action="session.opened", subject=f"tokens/{made.record.id}")
    info = _info(principal, opener, secret=made.secret, expires_at=expires_at)
    response = Response(info.model_dump_json(), status_code=HTTPStatus.CREATED, media_type="application/json")
    set_session(response, request, made.secret, now=now, expires_at=expires_at)
    return response


@router.get("/v1/session", name="Read the session", operation_id="get_session", responses=problems())
async def get_session(request: Request, service: ServiceOf, principal: Caller) -> SessionInfo:
    """The caller and its scopes, with or without a session; any token may read this."""
    secret: str | None = getattr(request.state, "session", None)
    session = await _record(service, secret) if secret is not None else None
    holder = session or await _record(service, _bearer_token(request))
    return _info(principal, holder, secret=secret, expires_at=session.expires_at if session is not None else None)


@router.delete(
    "/v1/session",
    name="End the session",
    operation_id="end_session",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(),
)
async def end_session(request: Request, service: ServiceOf, principal: Caller) -> Response:
    """The cookie stops working with the next request.  Without a session nothing changes."""
    session = await _record(service, getattr(request.state, "session", None))
    if session is not None:
        async with service.store.transaction() as tx:
            if await tx.tokens.revoke(session.id, at=service.now()):
                await service.audit(tx, actor=principal.actor, action="session.ended", subject=f"tokens/{session.id}")
        service.token_cache.clear()
    response = Response(status_code=HTTPStatus.NO_CONTENT)
    clear_session(response, request)
    return response


async def _opener(request: Request, service: Service, principal: Principal) -> TokenRecord:
    """Return the stored token of the caller."""
    record = await _record(service, _bearer_token(request))
    if record is None or actor_of(record.id) != principal.actor:
        raise invalid("header.Authorization", "allowed: `Bearer fw_ID_SECRET` of a token in `GET /v1/tokens`")
    return record


async def _record(service: Service, secret: str | None) -> TokenRecord | None:
    form = TOKEN_FORM.fullmatch(secret or "")
    if form is None:
        return None
    async with service.store.reading() as tx:
        return await tx.tokens.get(form["id"])


def _bearer_token(request: Request) -> str | None:
    return request.headers.get("authorization", "").partition(" ")[2].strip() or None


def _info(
    principal: Principal, holder: TokenRecord | None, *, secret: str | None, expires_at: datetime | None
) -> SessionInfo:
    return SessionInfo(
        actor=principal.actor,
        name=holder.name if holder is not None else None,
        scopes=tuple(sorted(principal.scopes)),
        project=principal.project,
        csrf_token=csrf_token(secret) if secret is not None else None,
        expires_at=expires_at,
    )
