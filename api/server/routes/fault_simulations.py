"""`/v1/faults/simulations`: how the detectors do on a cluster whose faults are known."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from api.schemas.faults import FaultQuestion, FaultSimulationRecord, FaultSimulationSummary
from api.schemas.pages import Cursor, Page, PageLimit
from api.server.auth import Planner, Reader, TokenFirst
from api.server.cursors import page_of, read_cursor
from api.server.idempotency import IdempotencyKey, Once, Reply
from api.server.openapi import WITH_BODY, problems
from api.server.problems import invalid
from api.server.service import ServiceOf
from api.server.stored_results import listed, of_faults, one_stored, stored_of
from api.server.uuid7 import ID_PATTERN, new_id
from api.store import Transaction

KIND = "simulation"
SHOWN = ("ranks", "hours", "scenario", "seed", "faults", "recall", "precision", "false_isolations")

router = APIRouter(tags=["faults"], route_class=TokenFirst)
SimulationId = Annotated[str, Path(pattern=ID_PATTERN)]


@router.post(
    "/v1/faults/simulations",
    name="Simulate faults",
    operation_id="create_fault_simulation",
    status_code=HTTPStatus.CREATED,
    response_model=FaultSimulationRecord,
    responses=problems(409, *WITH_BODY),
)
async def create_simulation(
    body: FaultQuestion,
    request: Request,
    service: ServiceOf,
    principal: Planner,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Recall, precision, false isolations and times to detect.  Ranks times hours are limited."""
    once = await Once.of(request, service=service, principal=principal, key=idempotency_key)
    if (saved := await once.saved()) is not None:
        return saved
    most = service.settings.fault_simulation_rank_hours
    if body.rank_hours > most:
        raise invalid("hours", f"ranks x hours must be at most {most:g} here, got {body.rank_hours:g}")
    answer = await service.planning.simulate_faults(body)
    now = service.now()
    record = FaultSimulationRecord(
        id=new_id(now), created_at=now, created_by=principal.actor, request=body, simulation=answer
    )

    async def work(tx: Transaction) -> Reply:
        shown = answer.model_dump(mode="json", include=set(SHOWN))
        await tx.fault_answers.add(stored_of(record, kind=KIND, summary=shown, request=body, answer=answer))
        await service.audit(
            tx,
            actor=principal.actor,
            action="fault-simulation.created",
            subject=f"faults/simulations/{record.id}",
            detail=shown,
        )
        return Reply(body=record.model_dump_json(), headers={"Location": f"/v1/faults/simulations/{record.id}"})

    return await once.write(work)


@router.get(
    "/v1/faults/simulations",
    name="List simulations of faults",
    operation_id="list_fault_simulations",
    responses=problems(),
)
async def list_simulations(
    service: ServiceOf,
    _principal: Reader,
    limit: Annotated[PageLimit, Query()] = 50,
    cursor: Annotated[Cursor | None, Query()] = None,
) -> Page[FaultSimulationSummary]:
    """Simulations of faults, newest first."""
    (before,) = read_cursor(cursor, str)
    found = await listed(service, KIND, before_id=before, limit=limit + 1, room=of_faults)
    summaries = [FaultSimulationSummary.model_validate(each) for each in found]
    return page_of(summaries, limit=limit, position=lambda last: (last.id,))


@router.get(
    "/v1/faults/simulations/{simulation_id}",
    name="Read a simulation of faults",
    operation_id="get_fault_simulation",
    response_model=FaultSimulationRecord,
    responses=problems(404),
)
async def get_simulation(simulation_id: SimulationId, service: ServiceOf, _principal: Reader) -> Response:
    """One simulation, with the question it answers."""
    return await one_stored(service, KIND, simulation_id, answer_field="simulation", room=of_faults)
