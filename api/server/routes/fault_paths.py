"""`/v1/faults/paths`: assign the connections of a job to cables."""

from fastapi import APIRouter

from api.schemas.fault_paths import PathsAnswer, PathsRequest
from api.server.auth import AuthenticatedRoute, Planner
from api.server.catalogues import TOPOLOGY
from api.server.openapi import WITH_BODY, problems
from api.server.service import ServiceOf

router = APIRouter(tags=["faults"], route_class=AuthenticatedRoute)


@router.post(
    "/v1/faults/paths", name="Plan a job's paths", operation_id="plan_fault_paths", responses=problems(*WITH_BODY)
)
async def plan_paths(body: PathsRequest, service: ServiceOf, _principal: Planner) -> PathsAnswer:
    """The least loaded assignment, compared with hashing.  The service stores nothing."""
    topology = body.topology
    if topology is None:
        async with service.store.reading() as tx:
            topology = await TOPOLOGY.in_force(tx)
    return await service.solver_pool.plan_paths(body, topology=topology)
