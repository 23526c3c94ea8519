"""`/v1/freeze`: stop every write to every target."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.schemas.targets import Freeze
from api.server.auth import FleetOperator, Reader
from api.server.etags import IfMatch, IfNoneMatch, write_precondition
from api.server.openapi import CACHED, TAGGED, WITH_BODY, problems
from api.server.route import ServiceRoute
from api.server.service import ServiceOf
from api.server.targets import FREEZE, write_freeze
from api.server.versioned import current, send

router = APIRouter(tags=["targets"], route_class=ServiceRoute)


@router.get(
    "/v1/freeze",
    name="Read the freeze",
    operation_id="get_freeze",
    response_model=Freeze,
    responses=CACHED | problems(),
)
async def get_freeze(service: ServiceOf, _principal: Reader, if_none_match: IfNoneMatch = None) -> Response:
    """Whether writes to targets are stopped, and why."""
    async with service.store.reading(single=True) as tx:
        return send(await current(tx, FREEZE), if_none_match=if_none_match)


@router.put(
    "/v1/freeze",
    name="Freeze or thaw",
    operation_id="put_freeze",
    response_model=Freeze,
    responses=TAGGED | problems(409, 412, 428, *WITH_BODY),
)
async def put_freeze(body: Freeze, service: ServiceOf, principal: FleetOperator, if_match: IfMatch = None) -> Response:
    """`If-Match: *` freezes without a read before, for emergencies."""
    precondition = write_precondition(if_match=if_match)
    return send(await write_freeze(service, body, precondition=precondition, actor=principal.actor))
