"""`/v1/plans/validate`: check a plan request without planning it, for editors that validate while a person types.

The check runs on the event loop, so it takes no body that needs a process of its own to be read.
"""

from collections.abc import Iterator
from http import HTTPStatus

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.schemas.plans import PlanCheck
from api.schemas.problems import FieldProblem
from api.server.auth import Planner
from api.server.catalogues import GPUS, MODELS, OFFERS
from api.server.openapi import WITH_BODY, problems
from api.server.problems import ProblemError, unprocessable
from api.server.route import RAW_BYTES, ServiceRoute, reads_raw
from api.server.service import ServiceOf
from fleet.documents import Violation, dotted
from fleet.errors import UnknownNameError
from fleet.models import ModelCatalogue
from planner.options.builder import unknown_gpu_names
from planner.options.rule_scopes import rule_violations
from planner.request import PlanRequest

router = APIRouter(tags=["plans"], route_class=ServiceRoute)


async def _refuse_large(_request: Request) -> Response:
    raise ProblemError(
        status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        kind="request-entity-too-large",
        detail=f"the body is over {RAW_BYTES} bytes; POST /v1/plans validates and plans it",
    )


@router.post(
    "/v1/plans/validate",
    name="Validate a plan request",
    operation_id="validate_plan",
    responses=problems(*WITH_BODY),
)
@reads_raw(_refuse_large)
async def validate_plan(body: PlanRequest, service: ServiceOf, _principal: Planner) -> PlanCheck:
    """Checks every field, and that the catalogues know the named models and GPUs.  Whether a plan exists is open."""
    async with service.store.reading() as tx:
        gpus, models, prices = await GPUS.in_force(tx), await MODELS.in_force(tx), await OFFERS.in_force(tx)
    offers = prices.offers if body.offers is None else body.offers
    violations = [
        *_unknown_models(body, models),
        *unknown_gpu_names(body, gpus=gpus, offers=offers),
        *rule_violations(body, offers),
    ]
    if violations:
        raise unprocessable([FieldProblem(path=dotted(path), message=message) for path, message in violations])
    return PlanCheck()


def _unknown_models(request: PlanRequest, models: ModelCatalogue) -> Iterator[Violation]:
    for position, workload in enumerate(request.workloads):
        if workload.options is None and workload.model is not None:
            try:
                models.get(workload.model)
            except UnknownNameError as error:
                yield ("workloads", position, "model"), str(error)
