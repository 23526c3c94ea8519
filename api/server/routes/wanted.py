"""Wanted replica counts for the autoscalers of others: JSON under `/v1`, and the pages of llm-d and AIBrix.

The two pages need no token, because their readers send none.  They contain only what `/metrics` contains too.
"""

import asyncio

from fastapi import APIRouter
from fastapi.responses import Response

from api.schemas.applications import ObjectName
from api.schemas.names import Name
from api.schemas.targets import Mode, Target
from api.schemas.wanted import WantedReplicas
from api.server.auth import Reader
from api.server.metrics import CONTENT_TYPE
from api.server.openapi import problems
from api.server.problems import ProblemError, not_found
from api.server.projects import ProjectOf
from api.server.reported_targets import parse_reports
from api.server.route import ServiceRoute, add_routes
from api.server.service import Service, ServiceOf
from api.server.targets import TARGETS, read_report
from api.server.wanted import Dialect, PublishedObjects, aibrix_page, counts_of, llm_d_page, parts_of, published_objects
from api.store import DatabaseUnavailableError

router = APIRouter(tags=["targets"], route_class=ServiceRoute)
_pages = APIRouter()


@router.get(
    "/v1/targets/{name}/wanted",
    name="Read a target's wanted replicas",
    operation_id="get_wanted_replicas",
    responses=problems(404),
)
async def get_wanted(name: Name, service: ServiceOf, _principal: Reader, project: ProjectOf) -> WantedReplicas:
    """The counts that an external autoscaler should run, for a target in mode `recommend`.  They stay while reconciles
    fail; 404 before the first.
    """
    async with service.store.reading() as tx:
        target = TARGETS.show(await TARGETS.get(tx, name, project=project))
        status = await read_report(tx, name)
    if (counts := counts_of(target, status)) is None:
        raise _unpublished(target)
    return WantedReplicas(
        target=name,
        plan_id=counts.plan_id,
        at=counts.at,
        age_s=max(0.0, (service.now() - counts.at).total_seconds()),
        parts=parts_of(target, counts),
    )


@_pages.get(
    "/metrics/llm-d",
    name="Wanted replicas for llm-d",
    operation_id="llm_d_metrics",
    response_class=Response,
    include_in_schema=False,  # the contract of another program
)
async def llm_d_metrics(service: ServiceOf) -> Response:
    """The gauges `wva_…` of every Kubernetes object with a wanted count, with the setting `publish`.  Scrape it through
    the Service, once for all replicas.
    """
    _require(service, Dialect.LLM_D)
    return Response(content=llm_d_page(await _published(service)), media_type=CONTENT_TYPE)


@_pages.get(
    "/metrics/{namespace}/{name}",
    name="Wanted replicas for AIBrix",
    operation_id="aibrix_metrics",
    response_class=Response,
    include_in_schema=False,  # the contract of another program
)
async def aibrix_metrics(namespace: Name, name: ObjectName, service: ServiceOf) -> Response:
    """The gauge `vllm:deployment_replicas` of one Kubernetes object, with the setting `publish`."""
    _require(service, Dialect.AIBRIX)
    if (found := (await _published(service)).find(namespace=namespace, name=name)) is None:
        raise not_found(f"wanted count of an object {namespace}/{name}")
    return Response(content=aibrix_page(found), media_type=CONTENT_TYPE)


add_routes(router, _pages)


def _require(service: Service, dialect: Dialect) -> None:
    if dialect not in service.settings.publish:
        raise not_found(f"such page: the setting `publish` does not contain {dialect.value}")


async def _published(service: Service) -> PublishedObjects:
    """Read the objects once per interval.  While the database does not respond the last counts stay: some readers scale
    down without one.
    """
    try:
        return await service.published_objects.get(lambda: _read(service))
    except DatabaseUnavailableError:
        if (held := service.published_objects.newest) is None:
            raise
        return held


async def _read(service: Service) -> PublishedObjects:
    async with service.store.reading() as tx:
        targets, reports = [target async for target in TARGETS.heads(tx)], await tx.statuses.all()

    def parse() -> PublishedObjects:
        return published_objects((each.target, each.status) for each in parse_reports(targets, reports))

    return await asyncio.to_thread(parse)


def _unpublished(target: Target) -> ProblemError:
    spec = target.spec
    if spec.mode is not Mode.RECOMMEND:
        because = f"it is in mode {spec.mode.value}; allowed: recommend"
    elif spec.plan_id is None:
        because = "it has no plan"
    else:
        because = "no reconcile has reported one yet"
    return not_found(f"wanted count of target {target.name!r}: {because}")
