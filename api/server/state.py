"""The state of the fleet as `/metrics` tells it."""

from collections.abc import AsyncIterator
from datetime import datetime
from functools import lru_cache

from api.schemas.targets import Freeze, TargetStatus
from api.server.catalogues import ALL
from api.server.diagnoses import read_report
from api.server.fault_metrics import Believed, FaultState
from api.server.metrics import FleetState, ReportedTarget
from api.server.power_metrics import PowerState
from api.server.power_trees import BUDGETS
from api.server.quarantine import MAX_BELIEVED, rules_in_force
from api.server.quarantine_state import remembered
from api.server.remediation import CASES
from api.server.remediation_metrics import mark_of
from api.server.routes.power_plans import KIND as CAP_PLANS
from api.server.service import Service
from api.server.targets import FREEZE, TARGETS
from api.server.versioned import current
from api.store import DatabaseUnavailableError, Transaction, VerdictHead
from faults.quarantine.inputs import NODES
from power.caps import CapPlan


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
                power=PowerState(
                    budgets=[(each.name, each.spec) async for each in BUDGETS.all(tx)], plan=await _newest_caps(tx)
                ),
                faults=await _faults(tx, service.now()),
                healing=[mark_of(case.body or "") async for case in CASES.heads(tx)],
            )
    except DatabaseUnavailableError:
        return FleetState(at=service.now(), database_up=False)


async def _reported(tx: Transaction) -> AsyncIterator[ReportedTarget]:
    reports = {report.target: report for report in await tx.statuses.all()}
    async for target in TARGETS.all(tx):
        report = reports.get(target.name)
        yield ReportedTarget(
            target=TARGETS.show(target),
            status=TargetStatus.model_validate_json(report.body) if report is not None else None,
            reported_at=report.reported_at if report is not None else None,
        )


async def _newest_caps(tx: Transaction) -> CapPlan | None:
    """The plan of caps that was made last."""
    found = await tx.power.page(kind=CAP_PLANS, before_id=None, limit=1)
    stored = await tx.power.get(kind=CAP_PLANS, answer_id=found[0].id) if found else None
    return read_caps(stored.answer) if stored is not None else None


async def _faults(tx: Transaction, now: datetime) -> FaultState:
    memory = await remembered(tx)
    return FaultState(
        believed=[_believed(head) for head in await tx.verdicts.believed(now=now, limit=MAX_BELIEVED)],
        mode=(await rules_in_force(tx)).mode,
        looked_at=memory.record.looked_at if memory.record is not None else None,
        fleet=len(memory.members),
        state=memory.state,
    )


def _believed(head: VerdictHead) -> Believed:
    report = read_report(head)
    verdict = report.verdict
    accused = report.name_of(verdict.node) if verdict.isolate and verdict.scope in NODES else None
    return Believed(fault=verdict.fault, scope=verdict.scope.value, since=head.created_at, node=accused)


@lru_cache(maxsize=2)
def read_caps(answer: str) -> CapPlan:
    """A stored plan; the same one is scraped again and again."""
    return CapPlan.model_validate_json(answer)
