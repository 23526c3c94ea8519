"""`/v1/faults/cases`: store remediation cases of nodes that are out of service."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter

from api.schemas.leases import REMEDIATION_LEASE
from api.schemas.names import NAME_PATTERN
from api.schemas.remediation import CaseSpec, RemediationCase
from api.schemas.tokens import TokenScope
from api.server.auth import RequireScope
from api.server.collections import AuditVerbs, Collection
from api.server.route import ServiceRoute, add_routes
from api.server.routes.collections import CollectionText, OperationText, collection_routes
from api.server.versioned import DocumentVersion
from fleet.documents import read_stored


def _detail(case: CaseSpec, before: DocumentVersion, _after: DocumentVersion) -> Mapping[str, Any]:
    last = read_stored(CaseSpec, before.body) if before.body is not None else None
    return {
        "node": case.node,
        "state": case.state.value,
        "stage": case.stage.value,
        "before": None if last is None else f"{last.state.value}/{last.stage.value}",
        "message": case.message,
    }


CASES = Collection(
    kind="remediation-cases",
    path="faults/cases",
    label="remediation case",
    verbs=AuditVerbs("remediation", creates="opened", replaces="updated"),
    spec=CaseSpec,
    shown=RemediationCase,
    show=lambda found: RemediationCase(
        id=found.name, version=found.version, updated_at=found.at, updated_by=found.by, case=found.spec
    ),
    parse=partial(read_stored, CaseSpec),
    detail=_detail,
    lease=REMEDIATION_LEASE,
)

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
