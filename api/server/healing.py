"""Healing cases as versioned documents: every phase that a case went through can be read again."""

from api.schemas.healing import CaseSpec, HealingCase
from api.server.etags import Precondition
from api.server.service import Service
from api.server.versioned import Deed, Edition, Slot, replace
from api.store import canonical_json

CASE_KIND = "healing-cases"


def case_slot(case_id: str) -> Slot:
    """Where a case lives."""
    return Slot(kind=CASE_KIND, name=case_id)


def read_case(case_id: str, found: Edition) -> HealingCase:
    """A stored case."""
    return HealingCase.model_validate(
        {
            "id": case_id,
            "version": found.version,
            "updated_at": found.created_at,
            "updated_by": found.created_by,
            "case": CaseSpec.model_validate_json(found.body or ""),
        }
    )


async def write_case(
    service: Service, case_id: str, case: CaseSpec, *, precondition: Precondition, actor: str
) -> tuple[Edition, bool]:
    """Open a case or carry it on; its new version, and whether it was opened."""

    def deed(before: Edition, _after: Edition) -> Deed:
        was = CaseSpec.model_validate_json(before.body).phase.value if before.body is not None else None
        detail = {"node": case.node, "phase": case.phase.value, "before": was, "message": case.message}
        verb = "opened" if was is None else "carried-on"
        return Deed(action=f"healing.{verb}", subject=f"faults/cases/{case_id}", detail=detail)

    before, after = await replace(
        service,
        case_slot(case_id),
        body=canonical_json(case.model_dump(mode="json")),
        precondition=precondition,
        actor=actor,
        deed=deed,
    )
    return after, before.body is None
