"""Stores remediation cases as a collection."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from api.schemas.leases import REMEDIATION_LEASE
from api.schemas.remediation import CaseSpec, RemediationCase
from api.server.collections import AuditVerbs, Collection
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
