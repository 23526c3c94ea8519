"""The route class of every operation that needs a token."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

from api.server.auth import RequireScope
from api.server.bodies import BodyRule, BodyShare, is_json, parse_document, read_body
from api.server.problems import invalid, report_database_failure
from api.server.service import Service
from api.store import DatabaseUnavailableError, Failure

REPEATS = 3
REPEATED = {Failure.DEADLOCK, Failure.LOCKED}
RAW_BYTES = 32 * 1024  # the process of a job reads larger bodies
CHECKED_BYTES = 16 * 1024  # a process of their own checks larger ones before the event loop parses them
RawHandler = Callable[[Request], Awaitable[Response]]


EndpointT = TypeVar("EndpointT", bound=Callable[..., Any])


class _StrictRequest(Request):
    """Refuses what FastAPI ignores: unknown query parameters, and all but the last of repeated parameters and keys."""

    def refuse_query(self, *, allowed: Sequence[str]) -> None:
        names = [name for name, _value in self.query_params.multi_items()]
        for name in names:
            if name not in allowed:
                raise invalid(f"query.{name}", f"is not a known parameter; allowed: {', '.join(allowed) or 'none'}")
            if names.count(name) > 1:
                raise invalid(f"query.{name}", "is given twice, expected once")

    async def parse(self, body: bytes, rule: BodyRule, service: Service) -> None:
        """Parse a body, which FastAPI then finds read."""
        if not is_json(self.headers.get("content-type")):
            return  # FastAPI refuses it
        if len(body) > CHECKED_BYTES:
            await service.body_checker.check(rule.model, body)
        with suppress(ValueError, RecursionError):  # FastAPI reads it again and reports why
            self._json = parse_document(body)

    async def receive_body(self, share: BodyShare, *, limit_bytes: int) -> bytes:
        self._body = await read_body(self, share, limit_bytes=limit_bytes)
        return self._body

    def let_release(self, share: BodyShare) -> None:
        """Let the operation release the body: a job stores it, and may take long.  The operation cannot run again."""

        def release() -> None:
            self._body = b""
            share.release()

        self.state.release_body = release


def _query_names(dependant: Dependant) -> list[str]:
    inner = [name for each in dependant.dependencies for name in _query_names(each)]
    return [parameter.alias for parameter in dependant.query_params] + inner


def reads_raw(handler: RawHandler) -> Callable[[EndpointT], EndpointT]:
    """Give an operation a handler for large bodies, which receives them unread."""

    def mark(endpoint: EndpointT) -> EndpointT:
        endpoint.reads_raw = handler  # type: ignore[attr-defined]
        return endpoint

    return mark


def add_routes(router: APIRouter, routes: APIRouter, *, tags: Sequence[str] = ()) -> None:
    """Add routes to a router.  With `include_router`, each request would search a tree of routers."""
    for route in routes.routes:
        if isinstance(route, APIRoute):
            route.tags = [*router.tags, *tags, *route.tags]
        router.routes.append(route)


class ServiceRoute(APIRoute):
    """Handles a request: authenticates the caller, then checks query and body, then runs the operation.

    FastAPI parses a body before it resolves any dependency.  Callers without a token could thus occupy a core.  An
    operation whose transaction ended at a lock timeout or as the victim of a deadlock runs again.
    """

    @cached_property
    def _literal(self) -> str:
        """The path up to its first parameter."""
        return self.path.partition("{")[0]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a path; most routes are ruled out before their expression is tried."""
        if self._literal not in scope["path"]:
            return Match.NONE, {}
        return super().matches(scope)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        needed = [each.call for each in self.dependant.dependencies if isinstance(each.call, RequireScope)]
        raw: RawHandler | None = getattr(self.endpoint, "reads_raw", None)
        query, rule = _query_names(self.dependant), BodyRule.of(self.dependant, is_large=raw is not None)

        async def handle_request(received: Request) -> Response:
            request = _StrictRequest(received.scope, received.receive)
            for each in needed:
                await each.validate(request)
            request.refuse_query(allowed=query)
            if rule is None:
                return await handle_repeatedly(request)
            service: Service = request.app.state.service
            with service.body_budget.share() as share:
                body = await request.receive_body(share, limit_bytes=rule.limit_bytes(service.settings))
                if raw is not None and len(body) > RAW_BYTES:
                    del body
                    request.let_release(share)
                    return await raw(request)
                await request.parse(body, rule, service)
                return await handle_repeatedly(request)

        async def handle_repeatedly(request: Request) -> Response:
            for _repeat in range(REPEATS):
                try:
                    return await handle(request)
                except DatabaseUnavailableError as error:
                    if error.failure not in REPEATED:
                        raise
                    report_database_failure(request, error)
            return await handle(request)

        return handle_request
