"""`/v1/audit`: read and verify the audit."""

from fastapi import APIRouter

from api.schemas.audit import AuditCheck, AuditEntry
from api.schemas.pages import Page
from api.server.auth import Admin
from api.server.cursors import Paging
from api.server.openapi import problems
from api.server.route import ServiceRoute
from api.server.service import ServiceOf
from api.store import AuditRecord

# Names of release 0.1.0.  Hashes cover entries as written, so entries keep them and only readers see new names.
RENAMED_ACTIONS = {
    "fault-verdict.reported": "diagnosis.reported",
    "fault-verdict.withdrawn": "diagnosis.withdrawn",
    "healing.carried-on": "remediation.updated",
    "healing.opened": "remediation.opened",
    "isolation-rules.replaced": "quarantine-rules.replaced",
    "isolation.breaker-wished-closed": "quarantine.breaker-reset-requested",
    "isolation.isolate": "quarantine.quarantine",
    "isolation.keep-out": "quarantine.cordon",
    "isolation.wished": "quarantine.action-requested",
    **{
        f"isolation.{decision}": f"quarantine.{decision}"
        for decision in ("suspect", "clear", "propose", "refuse", "probe", "release", "open-breaker", "close-breaker")
    },
}
RENAMED_SUBJECTS = {"faults/verdicts/": "faults/diagnoses/", "faults/isolation/": "faults/quarantine/"}

router = APIRouter(tags=["audit"], route_class=ServiceRoute)


@router.get("/v1/audit", name="Read the audit", operation_id="list_audit", responses=problems())
async def list_audit(
    service: ServiceOf,
    _principal: Admin,
    paging: Paging,
) -> Page[AuditEntry]:
    """Entries, newest first."""
    before = paging.start(int)
    async with service.store.reading() as tx:
        found = await tx.audit.page(before_seq=before, limit=paging.limit + 1)
    return paging.page([_entry(record) for record in found], position=lambda last: last.seq)


@router.get("/v1/audit/check", name="Check the audit chain", operation_id="check_audit", responses=problems())
async def check_audit(service: ServiceOf, _principal: Admin) -> AuditCheck:
    """Recompute every hash of the chain."""
    async with service.store.reading() as tx:
        broken = await tx.audit.first_broken()
        length = await tx.audit.length()
    return AuditCheck(entries=length, intact=broken is None, first_broken_seq=broken)


def _entry(record: AuditRecord) -> AuditEntry:
    entry = AuditEntry.model_validate(record, from_attributes=True)
    return entry.model_copy(
        update={"action": RENAMED_ACTIONS.get(entry.action, entry.action), "subject": _subject(entry.subject)}
    )


def _subject(path: str) -> str:
    for old, new in RENAMED_SUBJECTS.items():
        if path.startswith(old):
            return new + path.removeprefix(old)
    return path
