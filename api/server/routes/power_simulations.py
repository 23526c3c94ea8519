"""`/v1/power/simulations`: ask what a row behind a budget would do, read what was asked before."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from api.schemas.pages import Cursor, Page, PageLimit
from api.schemas.power import SimulationRecord, SimulationRequest, SimulationSummary
from api.server.auth import Planner, Reader, TokenFirst
from api.server.cursors import page_of, read_cursor
from api.server.idempotency import IdempotencyKey, Once, Reply
from api.server.openapi import WITH_BODY, problems
from api.server.problems import invalid
from api.server.service import Service, ServiceOf
from api.server.stored_results import listed, one_stored, stored_of
from api.server.uuid7 import ID_PATTERN, new_id
from api.store import Transaction
from power.whatif.cost_estimate import expected_requests

KIND = "simulation"
MAX_REQUESTS_A_SERVER_DAY = 20_000  # the built-in mix has some 1,500
SHOWN = ("servers", "budget_w", "policy", "days", "seed", "brakes", "peak_utilization", "slo_held")

router = APIRouter(tags=["power"], route_class=TokenFirst)
SimulationId = Annotated[str, Path(pattern=ID_PATTERN)]


@router.post(
    "/v1/power/simulations",
    name="Simulate a row",
    operation_id="create_power_simulation",
    status_code=HTTPStatus.CREATED,
    response_model=SimulationRecord,
    responses=problems(409, *WITH_BODY),
)
async def create_simulation(
    body: SimulationRequest,
    request: Request,
    service: ServiceOf,
    principal: Planner,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Brakes, power and latencies of a row under a policy.  Servers times days are limited."""
    once = await Once.of(request, service=service, principal=principal, key=idempotency_key)
    if (saved := await once.saved()) is not None:
        return saved
    _refuse_too_large(body, service)
    answer = await service.planning.simulate(body, body.sources)
    now = service.now()
    record = SimulationRecord(
        id=new_id(now), created_at=now, created_by=principal.actor, request=body, simulation=answer
    )

    async def work(tx: Transaction) -> Reply:
        shown = answer.model_dump(mode="json", include=set(SHOWN))
        await tx.power.add(stored_of(record, kind=KIND, summary=shown, request=body, answer=answer))
        await service.audit(
            tx,
            actor=principal.actor,
            action="power-simulation.created",
            subject=f"power/simulations/{record.id}",
            detail=shown,
        )
        return Reply(body=record.model_dump_json(), headers={"Location": f"/v1/power/simulations/{record.id}"})

    response = await once.write(work)
    service.metrics.observe_simulation(policy=answer.policy, brakes=answer.brakes, run_s=answer.total_s)
    return response


@router.get(
    "/v1/power/simulations", name="List simulations", operation_id="list_power_simulations", responses=problems()
)
async def list_simulations(
    service: ServiceOf,
    _principal: Reader,
    limit: Annotated[PageLimit, Query()] = 50,
    cursor: Annotated[Cursor | None, Query()] = None,
) -> Page[SimulationSummary]:
    """Simulations, newest first."""
    (before,) = read_cursor(cursor, str)
    found = await listed(service, KIND, before_id=before, limit=limit + 1)
    summaries = [SimulationSummary.model_validate(each) for each in found]
    return page_of(summaries, limit=limit, position=lambda last: (last.id,))


@router.get(
    "/v1/power/simulations/{simulation_id}",
    name="Read a simulation",
    operation_id="get_power_simulation",
    response_model=SimulationRecord,
    responses=problems(404),
)
async def get_simulation(simulation_id: SimulationId, service: ServiceOf, _principal: Reader) -> Response:
    """One simulation, with the question it answers."""
    return await one_stored(service, KIND, simulation_id, answer_field="simulation")


def _refuse_too_large(body: SimulationRequest, service: Service) -> None:
    most = service.settings.simulation_server_days
    if body.server_days > most:
        raise invalid("days", f"servers x days must be at most {most:g} here, got {body.server_days:g}")
    requests = expected_requests(body, body.sources)
    if not requests <= MAX_REQUESTS_A_SERVER_DAY * most:
        said = f"at most {MAX_REQUESTS_A_SERVER_DAY * most:,.0f} here"
        raise invalid("days", f"such servers would answer about {requests:,.0f} requests in that time, {said}")
