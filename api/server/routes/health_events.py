"""`/v1/faults/health-events`: store health events and their delivery to other systems."""

from fastapi import APIRouter

from api.schemas.health_events import DELIVERY_PATTERN
from api.schemas.tokens import TokenScope
from api.server.auth import RequireScope
from api.server.health_events import DELIVERIES
from api.server.route import ServiceRoute, add_routes
from api.server.routes.collections import CollectionText, OperationText, collection_routes

router = APIRouter(tags=["faults"], route_class=ServiceRoute)
add_routes(
    router,
    collection_routes(
        DELIVERIES,
        key="event_id",
        pattern=DELIVERY_PATTERN,
        writer=RequireScope(TokenScope.REPORT, fleet=True),
        text=CollectionText(
            singular="health_event",
            lists=OperationText(
                "List health events", "The newest event of each node and switch, per outlet, and its delivery."
            ),
            gets=OperationText("Read a health event", "The newest event of one node or switch for one outlet."),
            puts=OperationText(
                "Store a health event",
                "For the forwarder.  Create with `If-None-Match: *`, update with `If-Match`.",
            ),
        ),
    ),
)
