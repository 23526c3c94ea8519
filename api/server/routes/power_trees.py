"""`/v1/power/trees` and `/v1/power/budgets`: store power topology, and temporary limits of its domains."""

from fastapi import APIRouter

from api.schemas.names import NAME_PATTERN
from api.schemas.power import DOMAIN_PATTERN
from api.schemas.tokens import TokenScope
from api.server.auth import RequireScope
from api.server.power_trees import BUDGETS, TREES
from api.server.route import ServiceRoute, add_routes
from api.server.routes.collections import CollectionText, OperationText, collection_routes

PUT = "Create with `If-None-Match: *`, replace with `If-Match`."

router = APIRouter(tags=["power"], route_class=ServiceRoute)
add_routes(
    router,
    collection_routes(
        TREES,
        key="name",
        pattern=NAME_PATTERN,
        writer=RequireScope(TokenScope.PLAN, fleet=True),
        text=CollectionText(
            singular="power_tree",
            lists=OperationText("List power trees", "Power trees by name."),
            gets=OperationText("Read a power tree", "One power tree."),
            puts=OperationText("Create or replace a power tree", f"{PUT}  Budgets in force must stay valid."),
            deletes=OperationText("Delete a power tree", "Delete a tree on which no budget is in force."),
        ),
    ),
)
add_routes(
    router,
    collection_routes(
        BUDGETS,
        key="domain",
        pattern=DOMAIN_PATTERN,
        writer=RequireScope(TokenScope.OPERATE, fleet=True),
        text=CollectionText(
            singular="power_budget",
            lists=OperationText("List budgets", "The newest budget of each domain, expired ones included."),
            gets=OperationText("Read a domain's budget", "The newest budget of a domain."),
            puts=OperationText("Set a domain's budget", f"{PUT}  A refused budget leaves the old one in force."),
            deletes=OperationText(
                "Withdraw a domain's budget", "The power guard of the domain falls back to its standing budget."
            ),
        ),
    ),
)
