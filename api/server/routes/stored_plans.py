"""`/v1/plans/{id}/comparison`, `/explanation` and `/replay`: what a service computes about stored plans."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from api.jobs.results import PLAN_KIND
from api.jobs.stored_plans import PLAN_COMPARISON, PLAN_EXPLANATION, PLAN_REPLAY
from api.schemas.plans import (
    ComparisonRequest,
    ExplanationRequest,
    PlanExplanation,
    PlanReplayRequest,
    StoredPlanReplay,
)
from api.server.auth import Planner, Principal, Reader
from api.server.job_requests import ACCEPTED, PREFER, run_job
from api.server.openapi import WITH_BODY, problems
from api.server.problems import not_found
from api.server.projects import ProjectAccess, ProjectOf
from api.server.route import ServiceRoute
from api.server.routes.jobs import output_response
from api.server.service import Service, ServiceOf
from api.store import ID_PATTERN
from planner.comparison import PlanComparison

PlanId = Annotated[str, Path(alias="id", pattern=ID_PATTERN)]

router = APIRouter(tags=[PLAN_KIND.tag], route_class=ServiceRoute)


@router.get(
    "/v1/plans/{id}/comparison",
    name="Compare two plans",
    operation_id="compare_plans",
    response_model=PlanComparison,
    responses=ACCEPTED | problems(404),
    dependencies=[PREFER],
)
async def compare(
    *,
    plan_id: PlanId,
    other: Annotated[str, Query(alias="with", pattern=ID_PATTERN, description="The plan after the change.")],
    request: Request,
    service: ServiceOf,
    principal: Reader,
    project: ProjectOf,
) -> Response:
    """The changes from this plan to another one: cost, power, mix, latencies, routing, request."""
    await _require(service, project, other)
    text = ComparisonRequest(other=other).model_dump_json()
    return await _run(request, service, principal, project, plan_id, kind=PLAN_COMPARISON, text=text)


@router.post(
    "/v1/plans/{id}/explanation",
    name="Explain a plan",
    operation_id="explain_plan",
    response_model=PlanExplanation,
    responses=ACCEPTED | problems(404, *WITH_BODY),
    dependencies=[PREFER],
)
async def explain(
    *,
    plan_id: PlanId,
    body: ExplanationRequest,
    request: Request,
    service: ServiceOf,
    principal: Planner,
    project: ProjectOf,
) -> Response:
    """The stored request, solved again and explained, with the catalogues of the plan where they are still stored.

    Only the job keeps the explanation.
    """
    text = body.model_dump_json()
    return await _run(request, service, principal, project, plan_id, kind=PLAN_EXPLANATION, text=text)


@router.post(
    "/v1/plans/{id}/replay",
    name="Replay requests over a plan",
    operation_id="replay_plan",
    response_model=StoredPlanReplay,
    responses=ACCEPTED | problems(404, *WITH_BODY),
    dependencies=[PREFER],
)
async def replay(
    *,
    plan_id: PlanId,
    body: PlanReplayRequest,
    request: Request,
    service: ServiceOf,
    principal: Planner,
    project: ProjectOf,
) -> Response:
    """The SLO of each workload, checked by simulated requests over the stored mix.  Only the job keeps the result."""
    return await _run(request, service, principal, project, plan_id, kind=PLAN_REPLAY, text=body.model_dump_json())


async def _run(
    request: Request,
    service: Service,
    principal: Principal,
    project: ProjectAccess,
    plan_id: str,
    *,
    kind: str,
    text: str,
) -> Response:
    await _require(service, project, plan_id)
    respond = partial(output_response, service)
    subject = f"{PLAN_KIND.type.path}/{plan_id}"
    return await run_job(request, service, principal, kind=kind, text=text, subject=subject, respond=respond)


async def _require(service: Service, project: ProjectAccess, plan_id: str) -> None:
    async with service.store.reading() as tx:
        if not await tx.results.exists(kind=PLAN_KIND.type.name, result_id=plan_id, project=project.visible):
            raise not_found(f"plan {plan_id}")
