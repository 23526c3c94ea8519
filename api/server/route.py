"""The route class of every operation that needs a token."""

import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from api.jobs.body import unique
from api.server.auth import RequireScope
from api.server.problems import invalid, report_database_failure
from api.store import DatabaseUnavailableError, Failure

DEADLOCK_REPEATS = 2
RAW_BYTES = 32 * 1024  # the process of a job reads larger bodies
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

    async def read_document(self) -> None:
        with suppress(ValueError, RecursionError):  # FastAPI reads it again and reports why
            self._json = json.loads(await self.body(), object_pairs_hook=unique)


def _query_names(dependant: Dependant) -> list[str]:
    inner = [name for each in dependant.dependencies for name in _query_names(each)]
    return [parameter.alias for parameter in dependant.query_params] + inner


def reads_raw(handler: RawHandler) -> Callable[[EndpointT], EndpointT]:
    """Give an operation a handler for large bodies, which receives them unread."""

    def mark(endpoint: EndpointT) -> EndpointT:
        endpoint.reads_raw = handler  # type: ignore[attr-defined]
        return endpoint

    return mark


class ServiceRoute(APIRoute):
    """Handles a request: authenticates the caller, then checks query and body, then runs the operation.

    FastAPI parses a body before it resolves any dependency.  Callers without a token could thus occupy a core.  An
    operation whose transaction the database rolled back to end a deadlock runs again.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        needed = [each.call for each in self.dependant.dependencies if isinstance(each.call, RequireScope)]
        raw: RawHandler | None = getattr(self.endpoint, "reads_raw", None)
        query, has_body = _query_names(self.dependant), bool(self.dependant.body_params)

        async def handle_request(received: Request) -> Response:
            request = _StrictRequest(received.scope, received.receive)
            for each in needed:
                await each.validate(request)
            request.refuse_query(allowed=query)
            if raw is not None and len(await request.body()) > RAW_BYTES:
                return await raw(request)
            if has_body:
                await request.read_document()
            for _repeat in range(DEADLOCK_REPEATS):
                try:
                    return await handle(request)
                except DatabaseUnavailableError as error:
                    if error.failure is not Failure.DEADLOCK:
                        raise
                    report_database_failure(request, error)
            return await handle(request)

        return handle_request
