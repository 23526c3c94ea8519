"""`/v1/faults/cases`: store remediation cases of nodes that are out of service."""

from fastapi import APIRouter

from api.schemas.names import NAME_PATTERN
from api.schemas.tokens import TokenScope
from api.server.auth import RequireScope
from api.server.remediation import CASES
from api.server.route import ServiceRoute, add_routes
from api.server.routes.collections import CollectionText, OperationText, collection_routes

router = APIRouter(tags=["faults"], route_class=ServiceRoute)
add_routes(
    router,
    collection_routes(
        CASES,
        key="case_id",
        pattern=NAME_PATTERN,
        writer=RequireScope(TokenScope.REPORT, fleet=True),
        text=CollectionText(
            singular="remediation_case",
            lists=OperationText("List remediation cases", "Cases by id.  The id of a diagnosis sorts by time."),
            gets=OperationText("Read a remediation case", "One case with all its actions."),
            puts=OperationText(
                "Open or update a remediation case",
                "For the remediation controller.  Open with `If-None-Match: *`, update with `If-Match`.",
            ),
        ),
    ),
)
