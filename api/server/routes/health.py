"""`/livez`, `/readyz`, `/metrics`: for orchestrators and Prometheus, without a token and without secrets."""

from http import HTTPStatus
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import Response

from api.server.metrics import CONTENT_TYPE, render_state
from api.server.openapi import Responses, problems
from api.server.problems import ProblemError
from api.server.service import ServiceOf
from api.server.state import fleet_state
from fleet.documents import Frozen

router = APIRouter(tags=["health"])
_UNAVAILABLE: Responses = {503: problems()[503]}


class Health(Frozen):
    """The successful response; a failure is a problem."""

    status: Literal["ok"]


@router.get("/livez", name="Is the process alive", operation_id="livez")
async def livez() -> Health:
    """200 while the event loop runs.  The state of the database does not matter: a restart would not repair it."""
    return Health(status="ok")


@router.get("/readyz", name="Can it take requests", operation_id="readyz", responses=_UNAVAILABLE)
async def readyz(service: ServiceOf) -> Health:
    """200 once the database responds, its schema is the required one or newer, and the first token is stored."""
    async with service.store.reading() as tx:
        revision = await tx.schema_revision()
    if not service.supports_schema(revision):
        raise ProblemError(
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            kind="schema-not-current",
            detail=f"the database schema is at {revision or 'nothing'}, this program needs {service.schema_head}: "
            "run `fleetwright migrate`",
        )
    # The holder of the first token may use it as soon as the service reports ready.
    if not service.first_token_stored.is_set():
        raise ProblemError(
            status=HTTPStatus.SERVICE_UNAVAILABLE,
            kind="first-token-not-stored",
            detail="the service starts: its first token is not stored yet",
        )
    return Health(status="ok")


@router.get("/metrics", name="Prometheus metrics", operation_id="metrics", response_class=Response)
async def metrics(service: ServiceOf) -> Response:
    """Counters of this process and the state of the fleet; without the database, only that it is down."""
    state = await fleet_state(service)
    return Response(content=service.metrics.render() + render_state(state), media_type=CONTENT_TYPE)
