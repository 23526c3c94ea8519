"""`/v1/placements`: ask where experts should lie, read the placements there are, take them in an engine's own form."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from pydantic_core import to_jsonable_python

from api.schemas.pages import Cursor, Page, PageLimit
from api.schemas.placements import PlacementRecord, PlacementSummary
from api.server.auth import Planner, Reader, TokenFirst
from api.server.catalogues import MODELS
from api.server.cursors import page_of, read_cursor
from api.server.idempotency import IdempotencyKey, Once, Reply
from api.server.openapi import WITH_BODY, Responses, problems
from api.server.problems import not_found
from api.server.service import Service, ServiceOf
from api.server.uuid7 import ID_PATTERN, new_id
from api.store import PlacementHead, StoredPlacement, Transaction, canonical_json
from placement.formats.engine_writers import Engine
from placement.request import PlacementRequest

router = APIRouter(tags=["placements"], route_class=TokenFirst)
JSON, YAML = "application/json", "application/yaml"
EXPORTED: Responses = {
    200: {
        "description": "YAML for TensorRT-LLM, JSON for the others.",
        "content": {JSON: {"schema": {"type": "object"}}, YAML: {"schema": {"type": "string"}}},
    }
}
PlacementId = Annotated[str, Path(pattern=ID_PATTERN)]


@router.post(
    "/v1/placements",
    name="Ask for a placement",
    operation_id="create_placement",
    status_code=HTTPStatus.CREATED,
    response_model=PlacementRecord,
    responses=problems(409, *WITH_BODY),
)
async def create_placement(
    body: PlacementRequest,
    request: Request,
    service: ServiceOf,
    principal: Planner,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Replica counts and slots for the loads.  A ceiling that cannot be met is answered too: see `holds`."""
    once = await Once.of(request, service=service, principal=principal, key=idempotency_key)
    if (saved := await once.saved()) is not None:
        return saved
    async with service.store.reading() as tx:
        models = await MODELS.in_force(tx)
    placement = await service.planning.place(body, models=models)
    now = service.now()
    record = PlacementRecord(
        id=new_id(now), created_at=now, created_by=principal.actor, request=body, placement=placement
    )

    async def work(tx: Transaction) -> Reply:
        await tx.placements.add(_stored(record))
        await service.audit(
            tx,
            actor=principal.actor,
            action="placement.created",
            subject=f"placements/{record.id}",
            detail={"imbalance": placement.imbalance.mean, "bound": placement.bound.mean, "holds": placement.holds},
        )
        return Reply(body=record.model_dump_json(), headers={"Location": f"/v1/placements/{record.id}"})

    response = await once.write(work)
    service.metrics.observe_placement(
        imbalance=placement.imbalance.mean,
        bound=placement.bound.mean,
        holds=placement.holds,
        solve_s=placement.solve_s,
    )
    return response


@router.get("/v1/placements", name="List placements", operation_id="list_placements", responses=problems())
async def list_placements(
    service: ServiceOf,
    _principal: Reader,
    limit: Annotated[PageLimit, Query()] = 50,
    cursor: Annotated[Cursor | None, Query()] = None,
) -> Page[PlacementSummary]:
    """Placements, newest first."""
    (before,) = read_cursor(cursor, str)
    async with service.store.reading() as tx:
        found = await tx.placements.page(before_id=before, limit=limit + 1)
    summaries = [PlacementSummary.model_validate(head, from_attributes=True) for head in found]
    return page_of(summaries, limit=limit, position=lambda last: (last.id,))


@router.get(
    "/v1/placements/{placement_id}",
    name="Read a placement",
    operation_id="get_placement",
    response_model=PlacementRecord,
    responses=problems(404),
)
async def get_placement(placement_id: PlacementId, service: ServiceOf, _principal: Reader) -> Response:
    """One placement, with the request it answers."""
    found = await _stored_at(placement_id, service)
    head = {
        "id": found.head.id,
        "created_at": to_jsonable_python(found.head.created_at),
        "created_by": found.head.created_by,
    }
    # As text: what was stored is what was checked, and reading it all only to write it again takes long.
    body = f'{canonical_json(head)[:-1]},"placement":{found.answer},"request":{found.request}}}'
    return Response(content=body, media_type=JSON)


@router.get(
    "/v1/placements/{placement_id}/export",
    name="Take a placement in an engine's form",
    operation_id="export_placement",
    response_class=Response,
    responses=EXPORTED | problems(404),
)
async def export_placement(
    placement_id: PlacementId, engine: Annotated[Engine, Query()], service: ServiceOf, _principal: Reader
) -> Response:
    """The file that the engine loads."""
    found = await _stored_at(placement_id, service)
    text = await service.planning.export(found.answer, engine)
    return Response(content=text, media_type=YAML if engine is Engine.TRTLLM else JSON)


async def _stored_at(placement_id: str, service: Service) -> StoredPlacement:
    async with service.store.reading() as tx:
        found = await tx.placements.get(placement_id)
    if found is None:
        raise not_found(f"placement {placement_id}")
    return found


def _stored(record: PlacementRecord) -> StoredPlacement:
    placement = record.placement
    return StoredPlacement(
        head=PlacementHead(
            id=record.id,
            created_at=record.created_at,
            created_by=record.created_by,
            model=placement.model,
            slots=placement.slots,
            gpus=placement.gpus,
            nodes=placement.nodes,
            imbalance=placement.imbalance.mean,
            bound=placement.bound.mean,
            remote_nodes_per_token=placement.remote_nodes_per_token,
            moved_copies=placement.moved_copies,
            holds=placement.holds,
        ),
        request=canonical_json(record.request.model_dump(mode="json")),
        answer=canonical_json(placement.model_dump(mode="json")),
    )
