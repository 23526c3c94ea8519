"""`/v1/faults/cases`: what is done about nodes that were isolated, one case each."""

from fastapi import APIRouter

from api.schemas.names import NAME_PATTERN
from api.schemas.tokens import Scope
from api.server.auth import TokenFirst
from api.server.remediation import CASES
from api.server.routes.collections import Wording, Words, collection_routes

router = APIRouter(tags=["faults"], route_class=TokenFirst)
router.include_router(
    collection_routes(
        CASES,
        key="case_id",
        pattern=NAME_PATTERN,
        writer=Scope.OPERATE,
        wording=Wording(
            singular="healing_case",
            lists=Words("List healing cases", "Cases by id.  The id of a verdict sorts by time."),
            gets=Words("Read a healing case", "One case with everything that was done."),
            puts=Words(
                "Open a healing case or carry it on",
                "For the healer.  Open with `If-None-Match: *`, carry on with `If-Match`.",
            ),
        ),
    )
)
