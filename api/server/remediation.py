"""Stores remediation cases as a collection, so that every state and stage of a case stays readable."""

from collections.abc import Mapping
from typing import Any

from api.schemas.remediation import CaseSpec, RemediationCase
from api.server.collections import AuditVerbs, Collection
from api.server.versioned import DocumentVersion


def _detail(case: CaseSpec, before: DocumentVersion, _after: DocumentVersion) -> Mapping[str, Any]:
    last = CaseSpec.model_validate_json(before.body) if before.body is not None else None
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
    parse=CaseSpec.model_validate_json,
    detail=_detail,
)
