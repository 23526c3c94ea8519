"""`/v1/stock`: store the GPUs that plans may use, as counted in a cluster."""

from fastapi import APIRouter

from api.schemas.names import NAME_PATTERN
from api.schemas.tokens import TokenScope
from api.server.auth import RequireScope
from api.server.route import ServiceRoute, add_routes
from api.server.routes.collections import CollectionText, OperationText, collection_routes
from api.server.stocks import STOCKS

router = APIRouter(tags=["stock"], route_class=ServiceRoute)
add_routes(
    router,
    collection_routes(
        STOCKS,
        key="name",
        pattern=NAME_PATTERN,
        writer=RequireScope(TokenScope.REPORT, fleet=True),
        text=CollectionText(
            singular="stock",
            lists=OperationText("List stocks", "Stocks by name."),
            gets=OperationText(
                "Read a stock", "The GPUs of one cluster by type and place, with the time of the count."
            ),
            puts=OperationText("Create or replace a stock", "Create with `If-None-Match: *`, replace with `If-Match`."),
            deletes=OperationText("Delete a stock", "Plans with offers that name the stock are refused from then on."),
        ),
    ),
)
