"""Healing cases as a collection: every phase that a case went through can be read again."""

from collections.abc import Mapping
from typing import Any

from api.schemas.remediation import CaseSpec, HealingCase
from api.server.collections import Acts, Collection
from api.server.versioned import Edition


def _step(case: CaseSpec, before: Edition, _after: Edition) -> Mapping[str, Any]:
    was = CaseSpec.model_validate_json(before.body).phase.value if before.body is not None else None
    return {"node": case.node, "phase": case.phase.value, "before": was, "message": case.message}


CASES = Collection(
    kind="healing-cases",
    path="faults/cases",
    called="healing case",
    acts=Acts("healing", creates="opened", replaces="carried-on"),
    spec=CaseSpec,
    shown=HealingCase,
    show=lambda found: HealingCase(
        id=found.name, version=found.version, updated_at=found.at, updated_by=found.by, case=found.spec
    ),
    parse=CaseSpec.model_validate_json,
    detail=_step,
)
