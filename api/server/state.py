"""The state of the fleet as `/metrics` tells it."""

from collections.abc import AsyncIterator

from api.schemas.targets import Freeze, TargetStatus
from api.server.catalogues import ALL
from api.server.metrics import FleetState, ReportedTarget
from api.server.service import Service
from api.server.targets import FREEZE, TARGET_KIND, read_target
from api.server.versioned import current, edition
from api.store import DatabaseUnavailableError, Transaction

BATCH = 500


async def fleet_state(service: Service) -> FleetState:
    """Read everything that `/metrics` shows, or say that the database is down."""
    try:
        async with service.store.reading() as tx:
            freeze = Freeze.model_validate_json((await current(tx, FREEZE)).body or "")
            return FleetState(
                at=service.now(),
                database_up=True,
                targets=[target async for target in _reported(tx)],
                frozen=freeze.frozen,
                audit_entries=await tx.audit.length(),
                document_versions=[(item.kind.value, (await current(tx, item.slot)).version) for item in ALL],
            )
    except DatabaseUnavailableError:
        return FleetState(at=service.now(), database_up=False)


async def _reported(tx: Transaction) -> AsyncIterator[ReportedTarget]:
    reports = {report.target: report for report in await tx.statuses.all()}
    after: str | None = None
    while batch := await tx.documents.heads(kind=TARGET_KIND, after=after, limit=BATCH):
        for document in batch:
            report = reports.get(document.name)
            yield ReportedTarget(
                target=read_target(document.name, edition(document)),
                status=TargetStatus.model_validate_json(report.body) if report is not None else None,
                reported_at=report.reported_at if report is not None else None,
            )
        after = batch[-1].name
