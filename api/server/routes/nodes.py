"""`/v1/nodes`: every node of the fleet, with what the service stores about it."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query

from api.schemas.names import GpuName
from api.schemas.nodes import AnyNodeName, FleetNode
from api.schemas.pages import Page
from api.server.auth import Reader
from api.server.cursors import Paging
from api.server.nodes import NodeFilter, nodes_of, read_records
from api.server.openapi import problems
from api.server.problems import not_found
from api.server.projects import ProjectAccess, ProjectOf
from api.server.route import ServiceRoute
from api.server.service import Service, ServiceOf
from faults.quarantine import NodeState

router = APIRouter(tags=["nodes"], route_class=ServiceRoute)


@router.get("/v1/nodes", name="List nodes", operation_id="list_nodes", responses=problems())
async def list_nodes(
    *,
    service: ServiceOf,
    _principal: Reader,
    project: ProjectOf,
    paging: Paging,
    state: Annotated[NodeState | None, Query(description="Only nodes in this state.")] = None,
    gpu: Annotated[GpuName | None, Query(description="Only nodes with this GPU.")] = None,
    has_diagnosis: Annotated[
        bool | None, Query(description="Only nodes with, or without, an active diagnosis.")
    ] = None,
) -> Page[FleetNode]:
    """Nodes by name: those of the topology, of the last evaluation, and of diagnoses and cases."""
    chosen = NodeFilter(state=state, gpu=gpu, has_diagnosis=has_diagnosis)
    found = await _found(service, project, chosen, after=paging.start(str), limit=paging.limit + 1)
    return paging.page(found, position=lambda last: last.name)


@router.get("/v1/nodes/{name}", name="Read a node", operation_id="get_node", responses=problems(404))
async def get_node(
    name: Annotated[AnyNodeName, Path()], service: ServiceOf, _principal: Reader, project: ProjectOf
) -> FleetNode:
    """One node."""
    found = await _found(service, project, NodeFilter(name=name), after=None, limit=1)
    if not found:
        raise not_found(f"node {name!r}")
    return found[0]


async def _found(
    service: Service, project: ProjectAccess, chosen: NodeFilter, *, after: str | None, limit: int
) -> Sequence[FleetNode]:
    async with service.store.reading() as tx:
        records = await read_records(tx, project, now=service.now())
    # A topology of ten thousand nodes takes part of a second to read.
    return await asyncio.to_thread(nodes_of, records, chosen, after=after, limit=limit)
